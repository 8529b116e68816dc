"""Staleness: which groups may begin, which make the next batch, and when it may close. Pure gates, three policies.

The staleness of a group in the update from u is u - v; v = the oldest version at a first call of its executions. A group
without a first call yet counts as u: it cannot become older than that. `update` is the step of the current weights and,
in a run that was never resumed from an older checkpoint, the number of batches consumed.

| policy | dispatch: groups begun at most        | batch                             | bound             |
|--------|---------------------------------------|-----------------------------------|-------------------|
| window | (u // (S+1) + 1) * (S+1) * G          | oldest ready first                | S                 |
| wait   | (u + 1 + S) * G                       | oldest first, slots kept for old  | S                 |
| soft   | (u + 1 + S) * G                       | oldest ready first                | none (throttle)   |

`wait` keeps its bound by a counting argument (Hall's condition): with D(d) = unconsumed groups that must be consumed by
update d = v + S, it keeps D(d) <= (d - u + 1) * G for every d. Dispatch keeps it at the far end; a batch may hold a newer
group only while that leaves enough slots for the older ones. Looking at groups exactly at the bound is not enough when
S >= 2: a batch of newer groups today can leave more than G groups at the bound tomorrow.

Invariants (each has a test): the bounds above under every order of completion; a full batch satisfies the update gate; a
batch only grows; from a closed dispatch gate a batch can always fill once running groups end.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from gyre_hpc.config.schema import SchedulerConfig, SchedulerMode, Staleness


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A group that has begun and is not consumed."""

    id: Any
    """GroupId, or anything hashable whose order is the order of dispatch."""
    version: int | None
    """v as a step along the lineage; None before the first call of its executions."""


class BatchChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The batch as it stands."""

    groups: tuple[Any, ...]
    """Ids: those taken before, then the new ones, oldest version first."""
    added: tuple[Any, ...]
    """The new ones of `groups`."""
    full: bool
    """It takes no more groups, and the update gate lets it go."""
    reason: str
    """full, no_groups (nothing is ready), waits_for_stale (slots are kept for older groups), filling."""


def policy_of(config: SchedulerConfig) -> Staleness:
    """The policy in force: strict colocate alternates by windows whatever is configured."""
    return Staleness.window if config.mode is SchedulerMode.colocate else config.staleness


def dispatch_limit(update: int, policy: Staleness, *, max_staleness: int, groups_per_batch: int) -> int:
    """Groups that may have begun in total while the weights are at `update`."""
    window = max_staleness + 1
    if policy is Staleness.window:
        return (update // window + 1) * window * groups_per_batch
    return (update + window) * groups_per_batch


def may_dispatch(groups_begun: int, update: int, policy: Staleness, *, max_staleness: int, groups_per_batch: int) -> bool:
    """Whether one more group may begin. `groups_begun` counts all of this lineage, consumed ones included."""
    return groups_begun < dispatch_limit(update, policy, max_staleness=max_staleness, groups_per_batch=groups_per_batch)


def update_may_close(
    batch: Iterable[Candidate], pending: Iterable[Candidate], update: int, policy: Staleness, *, max_staleness: int, groups_per_batch: int
) -> bool:
    """Whether the update from `update` may be made of `batch`; `pending` are the other unconsumed groups.

    `wait`: not while a group at the bound is outside; unless every slot is taken by such groups (possible only after a
    resume with a smaller bound), when waiting would change nothing.
    """
    chosen = list(batch)
    if len(chosen) < groups_per_batch:
        return False
    if policy is not Staleness.wait:
        return True
    bound = update - max_staleness
    if all(_version(group, update) <= bound for group in chosen):
        return True
    return all(_version(group, update) > bound for group in pending)


def choose_batch(
    ready: Iterable[Candidate],
    pending: Iterable[Candidate],
    update: int,
    config: SchedulerConfig,
    *,
    groups_per_batch: int,
    taken: Sequence[Candidate] = (),
) -> BatchChoice:
    """The batch of the update from `update`.

    `ready`: complete groups outside the batch. A group that ended with nothing to train is ready too and takes its slot:
    otherwise the dispatch gate would count it for ever. `pending`: groups still running. `taken`: groups already in this
    batch; they stay, for their micro-batches may be leased.
    """
    policy, bound = policy_of(config), config.max_staleness
    waiting, running = sorted(ready, key=lambda group: _age(group, update)), list(pending)
    slots = _Slots([*taken, *waiting, *running], update, bound if policy is Staleness.wait else None, groups_per_batch)
    for group in taken:
        slots.take(group)
    added: list[Candidate] = []
    left: list[Candidate] = []
    for group in waiting:
        if slots.free > 0 and slots.can_take(group):
            slots.take(group)
            added.append(group)
        else:
            left.append(group)
    chosen = [*taken, *added]
    full = update_may_close(chosen, [*running, *left], update, policy, max_staleness=bound, groups_per_batch=groups_per_batch)
    reason = "full" if full else "waits_for_stale" if left or slots.free <= 0 else "filling" if chosen else "no_groups"
    return BatchChoice(groups=tuple(g.id for g in chosen), added=tuple(g.id for g in added), full=full, reason=reason)


class _Slots:
    """Slots of this and the following batches, against the deadlines of all unconsumed groups."""

    def __init__(self, groups: Sequence[Candidate], update: int, max_staleness: int | None, size: int) -> None:
        self.free = size
        self._update, self._bound, self._size = update, max_staleness, size
        self._newer = [0] * ((max_staleness or 0) + 1)
        """[j]: batch members whose deadline is later than update + j."""
        deadlines = sorted(self._slack(group) for group in groups) if max_staleness is not None else []
        self._due = [bisect_right(deadlines, j) for j in range(len(self._newer))]
        """[j]: unconsumed groups whose deadline is at most update + j."""

    def _slack(self, group: Candidate) -> int:
        """Batches after this one that may still hold the group; 0 = it must be in this one."""
        assert self._bound is not None
        return max(0, _version(group, self._update) + self._bound - self._update)

    def can_take(self, group: Candidate) -> bool:
        """Whether, with this group in the batch, every older one still finds a slot in time."""
        if self._bound is None:
            return True
        slack = min(self._slack(group), len(self._newer))
        return all(self._due[j] + self._newer[j] < (j + 1) * self._size for j in range(slack))

    def take(self, group: Candidate) -> None:
        self.free -= 1
        if self._bound is not None:
            for j in range(min(self._slack(group), len(self._newer))):
                self._newer[j] += 1


def _version(group: Candidate, update: int) -> int:
    return update if group.version is None else group.version


def _age(group: Candidate, update: int) -> tuple[int, Any]:
    return (_version(group, update), group.id)
