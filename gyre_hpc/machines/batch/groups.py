"""Executions and groups: who runs, who ended, which group is complete, which version it began with.

A group is begun -> complete (all its executions ended) -> chosen (for the open batch) -> consumed -> retired: only its number is kept.
Evaluation and warm start use groups of one execution; they never reach `chosen`.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

from gyre_hpc.protocol.identity import ExecutionId, GroupId, Version
from gyre_hpc.protocol.to_batch import Ended, ScoreState
from gyre_hpc.protocol.train_groups import TrainGroups

WARM_TASKS = 1_000_000
"""Warm start uses tasks of the train split from here on, so that no training group repeats one."""


class GroupState(enum.Enum):
    begun = "begun"
    complete = "complete"
    chosen = "chosen"
    consumed = "consumed"


@dataclass(kw_only=True, slots=True)
class Group:
    """K executions of one task."""

    id: GroupId
    ordinal: int
    members: list[str]
    """Execution ids now in its places."""
    state: GroupState = GroupState.begun
    durable: bool = False
    """GroupBegun is on disk: it may be given to a runner."""
    first_versions: dict[str, Version] = field(default_factory=dict)
    ended: dict[str, Ended] = field(default_factory=dict)
    floor: int = 0
    """Oldest step a first call could meet when the group began."""
    update: int = -1
    """Update it was chosen for."""
    former: list[str] = field(default_factory=list)
    """Executions whose places others took."""

    @property
    def oldest_possible_step(self) -> int:
        """No first call of it can have met an older one. A call whose fact is still on its way may have met the floor."""
        known = self.first_step
        if known is not None and len(self.first_versions) == len(self.members):
            return known
        return self.floor if known is None else min(known, self.floor)

    @property
    def first_step(self) -> int | None:
        """v of DESIGN §7: the oldest step at a first call of its executions; None before any call."""
        return min((version.step for version in self.first_versions.values()), default=None)

    @property
    def is_complete(self) -> bool:
        return len(self.ended) == len(self.members)


class Groups:
    """The groups of the run that are not retired, by id; counters kept at O(1) per event."""

    def __init__(self, groups_per_batch: int, group_size: int) -> None:
        self._per_batch, self._size = groups_per_batch, group_size
        self.groups: dict[GroupId, Group] = {}
        self._by_slot: dict[tuple[str, int], list[Group]] = {}
        self._unconsumed: dict[GroupId, Group] = {}
        """Training groups, oldest first; those consumed since it was last looked at too."""
        self.retired = TrainGroups(groups_per_batch)
        """What is said of their executions comes too late."""
        self.retired_step = 0
        """Updates before it consumed them: weights of an earlier step cannot be gone back to."""
        self.begun = {"train": 0, "eval": 0, "warm": 0}
        self.live: dict[str, GroupId] = {}
        """Executions begun and not ended -> group."""
        self.lives: dict[str, int] = {}
        """Live execution -> the life it is in, from 1 on."""
        self.counts: dict[str, int] = {}
        """Ended train executions by score state."""

    def next_group(self, purpose: str, slot: int = 0) -> GroupId:
        """Id of the group that would begin next."""
        if purpose == "train":
            return GroupId("train", self.begun["train"] // self._per_batch, self.begun["train"] % self._per_batch)
        return GroupId(purpose, slot, len(self._by_slot.get((purpose, slot), ())))

    def begin(self, id: GroupId, floor: int = 0) -> Group:
        size = self._size if id.purpose == "train" else 1
        members = [str(ExecutionId(id.purpose, id.slot, id.group, index)) for index in range(size)]
        group = Group(id=id, ordinal=self.begun[id.purpose], members=members, floor=floor)
        self.groups[id] = group
        self._by_slot.setdefault((id.purpose, id.slot), []).append(group)
        if id.purpose == "train":
            self._unconsumed[id] = group
        self.begun[id.purpose] += 1
        for member in members:
            self.live[member] = id
        return group

    def restart(self, old: str) -> str:
        """Another try takes the place of `old`; return its id."""
        group = self.of(old)
        assert group is not None
        new = str(ExecutionId.parse(old).restarted())
        group.members[group.members.index(old)] = new
        group.former.append(old)
        if group.state is GroupState.complete:
            group.state = GroupState.begun
        group.first_versions.pop(old, None)
        group.ended.pop(old, None)
        self.live.pop(old, None)
        self.lives.pop(old, None)
        self.live[new] = group.id
        return new

    def begin_life(self, execution: str, life: int) -> None:
        """What it said in the lives before stays its own, its first version too."""
        self.lives[execution] = life

    def is_awaited(self, ended: Ended) -> bool:
        """The end of an execution that has none, in the life it is in."""
        return ended.execution in self.live and ended.life == self.lives.get(ended.execution, 0)

    def first_call(self, execution: str, version: Version) -> None:
        group = self.of(execution)
        if group is not None and execution in group.members:
            group.first_versions.setdefault(execution, version)

    def end(self, ended: Ended) -> Group | None:
        """Record an end once; return its group if it completes it."""
        group = self.of(ended.execution)
        if group is None or ended.execution not in group.members or ended.execution in group.ended:
            return None
        group.ended[ended.execution] = ended
        self.live.pop(ended.execution, None)
        self.lives.pop(ended.execution, None)
        if group.id.purpose == "train":
            self.counts[ended.state.value] = self.counts.get(ended.state.value, 0) + 1
        if not group.is_complete:
            return None
        group.state = GroupState.complete
        return group

    def of(self, execution: str) -> Group | None:
        return self.groups.get(ExecutionId.parse(execution).group_id)

    def is_known(self, execution: str) -> bool:
        group = self.of(execution)
        return group is not None and execution in group.members

    def of_purpose(self, purpose: str, slot: int | None = None) -> list[Group]:
        if slot is not None:
            return list(self._by_slot.get((purpose, slot), ()))
        return [group for id, group in self.groups.items() if id.purpose == purpose]

    def in_state(self, state: GroupState) -> list[Group]:
        """Training groups in `state`, oldest first. O(those that are not consumed): a run asks with every report it takes."""
        for id in [id for id, group in self._unconsumed.items() if group.state is GroupState.consumed]:
            del self._unconsumed[id]
        return [group for group in (self._unconsumed if state is not GroupState.consumed else self.groups).values() if group.state is state]

    @property
    def num_gone_through(self) -> int:
        """Groups that `in_state` looks at."""
        return len(self._unconsumed)

    def unconsume_from(self, step: int) -> None:
        """A checkpoint of `step` was loaded: what later updates consumed is to be trained again."""
        for group in self.of_purpose("train"):
            if group.state is GroupState.chosen or (group.state is GroupState.consumed and group.update >= step):
                group.state, group.update = GroupState.complete, -1
        self._unconsumed = {group.id: group for group in self.of_purpose("train")}

    def retire(self, groups: Iterable[Group], step: int) -> None:
        """They were consumed by updates before `step`, and no weights before that will be gone back to."""
        ids = [group.id for group in groups]
        for id in ids:
            of_slot = self._by_slot[id.purpose, id.slot]
            of_slot.remove(self.groups.pop(id))
            if not of_slot:
                del self._by_slot[id.purpose, id.slot]
            self._unconsumed.pop(id, None)
        self.retired = self.retired.united(ids)
        self.retired_step = max(self.retired_step, step if ids else 0)

    def consumed_with(self, ids: Iterable[GroupId]) -> TrainGroups:
        """All training groups that were consumed so far, and `ids`."""
        kept = [group.id for group in self.of_purpose("train") if group.state is GroupState.consumed]
        return self.retired.united((*kept, *ids))

    def ends_of(self, purpose: str, slot: int) -> list[Ended]:
        """Of a trial."""
        return [ended for group in self.of_purpose(purpose, slot) for ended in group.ended.values()]

    def num_passed(self, purpose: str, slot: int) -> tuple[int, int]:
        """(passed, ended with a score) of a trial."""
        scored = [ended for ended in self.ends_of(purpose, slot) if ended.state in (ScoreState.scored, ScoreState.partial)]
        return sum(ended.passed for ended in scored), len(scored)


def task_of(id: GroupId, ordinal: int) -> tuple[str, int]:
    """(split, index) of a group's task."""
    if id.purpose == "train":
        return "train", ordinal
    if id.purpose == "warm":
        return "train", WARM_TASKS + id.group
    return "heldout", id.group
