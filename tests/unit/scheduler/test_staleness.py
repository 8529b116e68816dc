"""The gates alone, driven by a small loop in which groups begin, call and complete in random order."""

import random
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from gyre_hpc.config.schema import SchedulerConfig, SchedulerMode, Staleness
from gyre_hpc.scheduler.staleness import Candidate, choose_batch, dispatch_limit, may_dispatch, policy_of, update_may_close


@dataclass
class Loop:
    """A run without cells: only groups, versions and gates."""

    dice: random.Random
    config: SchedulerConfig
    size: int
    eager: float
    """Chance that an update is made as soon as it can be."""
    now: int = 0
    begun: int = 0
    running: dict[int, int | None] = field(default_factory=dict)
    ready: dict[int, int] = field(default_factory=dict)
    batch: dict[int, int] = field(default_factory=dict)
    staleness: list[int] = field(default_factory=list)
    most_begun_ahead: int = 0

    def step(self) -> None:
        full = self.choose()
        moves = [self.make_update] if full else []
        if not (full and self.dice.random() < self.eager):
            bounds = {"max_staleness": self.config.max_staleness, "groups_per_batch": self.size}
            if may_dispatch(self.begun, self.now, policy_of(self.config), **bounds):
                moves.append(self.begin)
            if None in self.running.values():
                moves.append(self.first_call)
            if any(version is not None for version in self.running.values()):
                moves.append(self.complete)
        assert moves, "nothing can happen: deadlock"
        self.dice.choice(moves)()

    def begin(self) -> None:
        self.running[self.begun] = None
        self.begun += 1
        self.most_begun_ahead = max(self.most_begun_ahead, self.begun - self.now * self.size)

    def first_call(self) -> None:
        self.running[self.dice.choice([g for g, v in self.running.items() if v is None])] = self.now

    def complete(self) -> None:
        group = self.dice.choice([g for g, v in self.running.items() if v is not None])
        version = self.running.pop(group)
        assert version is not None
        self.ready[group] = version

    def choose(self) -> bool:
        choice = choose_batch(
            candidates(self.ready),
            candidates(self.running),
            self.now,
            self.config,
            groups_per_batch=self.size,
            taken=candidates(self.batch),
        )
        assert choice.groups[: len(self.batch)] == tuple(self.batch), "a batch only grows"
        for group in choice.added:
            self.batch[group] = self.ready.pop(group)
        assert choice.full == (len(self.batch) == self.size), "a batch of that size never waits for the update gate"
        return choice.full

    def make_update(self) -> None:
        self.staleness += [self.now - version for version in self.batch.values()]
        self.batch.clear()
        self.now += 1


def candidates(groups: dict[int, int] | dict[int, int | None]) -> list[Candidate]:
    return [Candidate(id=group, version=version) for group, version in groups.items()]


def drive(config: SchedulerConfig, seed: int, size: int, eager: float, steps: int = 400) -> Loop:
    loop = Loop(random.Random(seed), config, size, eager)
    for _ in range(steps):
        loop.step()
    return loop


runs = {"seed": st.integers(0, 2**32), "size": st.integers(1, 5), "eager": st.sampled_from([0.1, 0.5, 1.0])}


@settings(max_examples=80, deadline=None)
@given(bound=st.integers(0, 4), policy=st.sampled_from([Staleness.wait, Staleness.window]), **runs)
def test_window_and_wait_never_exceed_their_bound(bound: int, policy: Staleness, seed: int, size: int, eager: float) -> None:
    loop = drive(SchedulerConfig(staleness=policy, max_staleness=bound), seed, size, eager)
    assert loop.now > 0
    assert max(loop.staleness) <= bound
    assert loop.most_begun_ahead <= (bound + 1) * size


@settings(max_examples=30, deadline=None)
@given(bound=st.integers(0, 4), **runs)
def test_soft_throttles_dispatch_and_never_holds_ready_groups_back(bound: int, seed: int, size: int, eager: float) -> None:
    loop = drive(SchedulerConfig(staleness=Staleness.soft, max_staleness=bound), seed, size, eager)
    assert loop.now > 0
    assert loop.most_begun_ahead <= (bound + 1) * size


def test_soft_lets_stragglers_exceed_the_bound() -> None:
    config = SchedulerConfig(staleness=Staleness.soft, max_staleness=1)
    choice = choose_batch([Candidate(id=9, version=5)], [Candidate(id=0, version=0)], 5, config, groups_per_batch=1)
    assert (choice.groups, choice.full) == ((9,), True)


def test_wait_keeps_slots_for_groups_that_would_exceed_the_bound_later() -> None:
    """With S=2, G=2: four groups of version 0 still run; two newer ones must not take the whole batch 1."""
    config = SchedulerConfig(staleness=Staleness.wait, max_staleness=2)
    old = [Candidate(id=i, version=0) for i in range(2, 6)]
    new = [Candidate(id=i, version=1) for i in (6, 7)]
    choice = choose_batch(new, old, 1, config, groups_per_batch=2)
    assert (choice.groups, choice.full, choice.reason) == ((), False, "waits_for_stale")
    choice = choose_batch(new, old[:3], 1, config, groups_per_batch=2)
    assert choice.groups == (6,), "one of three old ones may wait for batch 2, so one slot is free"


def test_oldest_versions_go_first_and_ties_go_to_the_earlier_dispatch() -> None:
    config = SchedulerConfig(staleness=Staleness.soft, max_staleness=3)
    ready = [Candidate(id=5, version=2), Candidate(id=4, version=1), Candidate(id=3, version=2), Candidate(id=1, version=None)]
    assert choose_batch(ready, [], 3, config, groups_per_batch=3).groups == (4, 3, 5)


def test_the_update_waits_for_a_group_at_the_bound() -> None:
    bounds = {"max_staleness": 1, "groups_per_batch": 1}
    batch, old = [Candidate(id=1, version=3)], [Candidate(id=0, version=2)]
    assert not update_may_close(batch, old, 3, Staleness.wait, **bounds)
    assert update_may_close(batch, old, 3, Staleness.soft, **bounds)
    assert update_may_close(old, batch, 3, Staleness.wait, **bounds)
    assert not update_may_close([], [], 3, Staleness.soft, **bounds)


def test_a_smaller_bound_after_a_resume_does_not_deadlock() -> None:
    config = SchedulerConfig(staleness=Staleness.wait, max_staleness=0)
    late = [Candidate(id=i, version=0) for i in range(3)]
    assert choose_batch(late, [Candidate(id=7, version=1)], 2, config, groups_per_batch=2).full


def test_dispatch_limits_of_sliding_and_window_policies() -> None:
    bounds = {"max_staleness": 3, "groups_per_batch": 16}
    assert [dispatch_limit(u, Staleness.wait, **bounds) for u in (0, 1, 4)] == [64, 80, 128]
    assert [dispatch_limit(u, Staleness.window, **bounds) for u in (0, 3, 4)] == [64, 64, 128]
    assert may_dispatch(63, 0, Staleness.wait, **bounds)
    assert not may_dispatch(64, 0, Staleness.wait, **bounds)


def test_strict_colocate_always_works_in_windows() -> None:
    assert policy_of(SchedulerConfig(mode=SchedulerMode.colocate, staleness=Staleness.wait)) is Staleness.window
    assert policy_of(SchedulerConfig(mode=SchedulerMode.colocate_carry, staleness=Staleness.wait)) is Staleness.wait
