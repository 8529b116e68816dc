"""Executions that take no more calls: by name those that ended lately, and as whole groups what the batch machine will never run again."""

from gyre_hpc.protocol.identity import ExecutionId
from gyre_hpc.protocol.train_groups import TrainGroups


class Over:
    """Only grows. What a name says that a group says too is not kept."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._groups = TrainGroups()

    @property
    def num_names(self) -> int:
        """Executions that are kept one by one."""
        return len(self._names)

    def __contains__(self, execution: str) -> bool:
        return execution in self._names or self._has_group_of(execution)

    def add(self, execution: str) -> None:
        if execution not in self:
            self._names.add(execution)

    def take(self, groups: TrainGroups) -> bool:
        """These groups are over; False if that is no news."""
        both = self._groups.joined(groups)
        if both == self._groups:
            return False
        self._groups = both
        self._names = {name for name in self._names if not self._has_group_of(name)}
        return True

    def _has_group_of(self, execution: str) -> bool:
        return bool(self._groups) and ExecutionId.parse(execution).group_id in self._groups
