"""What is over: every end is kept until the batch machine acknowledged it, and told again if it asks again."""

from collections.abc import Iterable

from gyre_hpc.machines.execution.records import Began, Finish, Forgotten, Record
from gyre_hpc.protocol.to_batch import Ended


class Book:
    """Ends of executions, from this life of the runner and from those before it."""

    def __init__(self) -> None:
        self._ended: dict[str, Ended] = {}
        self._unacked: set[str] = set()
        self._dropped: set[str] = set()

    def read(self, records: Iterable[Record]) -> list[str]:
        """Take what was persisted; return the executions that were under way when the runner died."""
        open_ones: dict[str, None] = {}
        for record in records:
            match record:
                case Began(execution=execution):
                    open_ones[execution] = None
                case Finish(ended=ended):
                    open_ones.pop(ended.execution, None)
                    self.end(ended)
                case Forgotten(executions=executions):
                    for execution in executions:
                        open_ones.pop(execution, None)
                    self.acknowledge(executions)
        return list(open_ones)

    def end(self, ended: Ended) -> None:
        self._ended[ended.execution] = ended
        self._unacked.add(ended.execution)

    def knows(self, execution: str) -> bool:
        return execution in self._ended

    def ask_again(self, execution: str) -> None:
        """The batch machine still wants an execution that ended here: tell it once more."""
        self._unacked.add(execution)

    def acknowledge(self, executions: Iterable[str]) -> tuple[str, ...]:
        """Stop telling these; return those that were still being told."""
        known = tuple(sorted(self._unacked & set(executions)))
        self._unacked.difference_update(known)
        return known

    def unacknowledged(self) -> tuple[Ended, ...]:
        return tuple(self._ended[execution] for execution in sorted(self._unacked))
