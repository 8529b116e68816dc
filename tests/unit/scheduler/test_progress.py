"""decide and the gates together, on a toy machine room: whatever the mode, policy and size, the updates get made."""

import math
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gyre_hpc.config.schema import SchedulerConfig, SchedulerMode, Staleness
from gyre_hpc.scheduler.base import EngineCurve, Facts
from gyre_hpc.scheduler.choose import decide
from gyre_hpc.scheduler.staleness import Candidate, choose_batch, may_dispatch, policy_of

SIZE, PER_GROUP = 3, 2
"""Groups of a batch, micro-batches of a group."""


@dataclass
class Room:
    """Ticks of one second. Cell 0 is the core; micro-batches and group lengths are drawn."""

    dice: random.Random
    config: SchedulerConfig
    cells: int
    capacity: int
    """Groups that run at once."""
    barren: float
    """Share of groups that end with nothing to train."""
    now: float = 0.0
    update: int = 0
    begun: int = 0
    training: list[int] = field(default_factory=list)
    running: dict[int, list[float]] = field(default_factory=dict)
    """Group -> [version, work left]."""
    ready: dict[int, int] = field(default_factory=dict)
    batch: dict[int, int] = field(default_factory=dict)
    full: bool = False
    waiting: list[int] = field(default_factory=list)
    busy: dict[int, int] = field(default_factory=dict)
    """Cell -> seconds left of its micro-batch."""
    opened: bool = False
    applying: bool = False
    last_lend: float = -math.inf
    staleness: list[int] = field(default_factory=list)

    def gate_closed(self) -> bool:
        bounds = {"max_staleness": self.config.max_staleness, "groups_per_batch": SIZE}
        return not may_dispatch(self.begun, self.update, policy_of(self.config), **bounds)

    def tick(self) -> None:
        self.now += 1.0
        if self.applying:
            self.close()
        while not self.gate_closed() and len(self.running) < self.capacity:
            self.running[self.begun] = [self.update, self.dice.choice([1.0, 3.0, 3.0, 40.0])]
            self.begun += 1
        self.choose()
        self.move()
        self.train()
        self.roll_out()

    def choose(self) -> None:
        if self.full:
            return
        running = [Candidate(id=group, version=int(version)) for group, (version, _) in self.running.items()]
        ready, taken = ([Candidate(id=g, version=v) for g, v in groups.items()] for groups in (self.ready, self.batch))
        choice = choose_batch(ready, running, self.update, self.config, groups_per_batch=SIZE, taken=taken)
        for group in choice.added:
            self.batch[group] = self.ready.pop(group)
            if self.dice.random() >= self.barren:
                self.waiting += [self.dice.choice([1, 2, 5])] * PER_GROUP
        self.full = choice.full

    def move(self) -> None:
        decision = decide(self.facts(), self.config)
        if decision.want > len(self.training):
            cell = min(set(range(self.cells)) - set(self.training))
            self.training.append(cell)
            self.last_lend = self.now
            if self.running and len(self.training) == self.cells:
                assert decision.pause_rollout
        elif decision.want < len(self.training):
            # Satellites before the core; one inside a micro-batch ends it first.
            idle = [cell for cell in self.training if cell not in self.busy and (cell or len(self.training) == 1)]
            if idle:
                self.training.remove(max(idle))
        assert 0 in self.training or not self.training, "core first in, last out"

    def facts(self) -> Facts:
        return Facts(
            now=self.now,
            cells=self.cells,
            training=len(self.training),
            core_training=0 in self.training,
            live=len(self.running),
            groups_per_batch=SIZE,
            groups_ready=len(self.batch),
            batch_full=self.full,
            batch_open=self.opened,
            gate_closed=self.gate_closed(),
            micro_batches_waiting=len(self.waiting),
            ready_work_s=float(sum(self.waiting)),
            cells_busy_training=len(self.busy),
            update_in_progress=self.applying,
            switch_s=0.1,
            pull_s=0.05,
            last_lend=self.last_lend,
            window_complete=self.gate_closed() and not self.running,
            curve=EngineCurve(half=1.0),
        )

    def train(self) -> None:
        self.busy = {cell: left - 1 for cell, left in self.busy.items() if left > 1}
        for cell in self.training:
            if cell not in self.busy and self.waiting and not self.applying:
                self.busy[cell] = self.waiting.pop()
                self.opened = True
        self.applying = self.full and not self.waiting and not self.busy and 0 in self.training

    def close(self) -> None:
        self.staleness += [self.update - version for version in self.batch.values()]
        self.batch.clear()
        self.update, self.full, self.opened, self.applying = self.update + 1, False, False, False

    def roll_out(self) -> None:
        serving = self.cells - len(self.training)
        if not serving or not self.running:
            return
        speed = serving * EngineCurve(half=1.0).throughput(len(self.running) / serving) / len(self.running)
        for group in list(self.running):
            self.running[group][1] -= speed
            if self.running[group][1] <= 0:
                self.ready[group] = int(self.running.pop(group)[0])


@pytest.mark.parametrize("mode", list(SchedulerMode))
@settings(max_examples=25, deadline=None)
@given(
    policy=st.sampled_from(Staleness),
    bound=st.integers(0, 3),
    cells=st.integers(1, 6),
    capacity=st.integers(1, 30),
    barren=st.sampled_from([0.0, 0.3, 1.0]),
    lead=st.sampled_from([0.0, 3.0, 1e6]),
    dwell=st.sampled_from([0.0, 20.0]),
    split=st.integers(1, 5),
    seed=st.integers(0, 2**32),
)
def test_updates_get_made_within_the_staleness_bound(
    mode: SchedulerMode,
    policy: Staleness,
    bound: int,
    cells: int,
    capacity: int,
    barren: float,
    lead: float,
    dwell: float,
    split: int,
    seed: int,
) -> None:
    config = SchedulerConfig(
        mode=mode, staleness=policy, max_staleness=bound, lead_floor_s=lead, lead_factor=0.0, dwell_s=dwell, split=split
    )
    room = Room(random.Random(seed), config, cells, capacity, barren)
    for _ in range(4000):
        room.tick()
        if room.update == 6:
            break
    assert room.update == 6, f"stuck: {decide(room.facts(), config)}"
    if policy_of(config) is not Staleness.soft:
        assert max(room.staleness) <= bound
