"""Many training groups as one small value: groups begin one after the other and most are consumed so, so that a few runs of numbers tell
all that an update, a checkpoint or a whole run has consumed."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from gyre_hpc.protocol.identity import ExecutionId, GroupId
from gyre_hpc.protocol.ranges import Ranges

_TRAIN = "train"


class TrainGroups(msgspec.Struct, frozen=True):
    """A set of them. Which executions have or had a place in a group, their names say."""

    per_batch: int = 1
    """Groups of a slot: a group's number is slot x per_batch + its place in the slot."""
    numbers: Ranges = Ranges()

    @classmethod
    def of(cls, per_batch: int, groups: Iterable[GroupId]) -> "TrainGroups":
        return cls(per_batch).united(groups)

    def united(self, groups: Iterable[GroupId]) -> "TrainGroups":
        """With these too; all are training groups of slots of `per_batch`."""
        numbers = [group.slot * self.per_batch + group.group for group in groups]
        return TrainGroups(self.per_batch, self.numbers.united((number, number + 1) for number in numbers))

    def joined(self, other: "TrainGroups") -> "TrainGroups":
        """Both; `other` is of the same run, or empty."""
        assert not (self.numbers and other.numbers) or self.per_batch == other.per_batch, "groups of two runs"
        return TrainGroups((other if other.numbers else self).per_batch, self.numbers.united(other.numbers.runs))

    def __contains__(self, group: GroupId) -> bool:
        is_one = group.purpose == _TRAIN and group.group < self.per_batch
        return is_one and group.slot * self.per_batch + group.group in self.numbers

    def __iter__(self) -> Iterator[GroupId]:
        """In the order in which they began."""
        return (GroupId(_TRAIN, *divmod(number, self.per_batch)) for number in self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    def holds(self, execution: str) -> bool:
        """It has or had a place in one of them."""
        return ExecutionId.parse(execution).group_id in self

    def plain(self) -> dict[str, Any]:
        """For state.json (docs/formats.md); `read` is the inverse."""
        return {"groups_per_batch": self.per_batch, "groups": [list(run) for run in self.numbers.runs]}

    @classmethod
    def read(cls, stored: Any) -> "TrainGroups":
        """What `plain` gave; up to format 2 of run folders it was a list of the names of all executions. Raises ValueError for anything else."""
        try:
            if isinstance(stored, list):
                groups = [ExecutionId.parse(name).group_id for name in stored]
                return cls.of(1 + max((group.group for group in groups), default=0), groups)
            per_batch, runs = int(stored["groups_per_batch"]), [(int(first), int(behind)) for first, behind in stored["groups"]]
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"consumed groups {str(stored)[:80]!r} cannot be read ({error})") from error
        if per_batch < 1 or any(not 0 <= first < behind for first, behind in runs):
            raise ValueError(f"consumed groups {str(stored)[:80]!r} hold no number of groups, or a run that is none")
        return cls(per_batch, Ranges().united(runs))
