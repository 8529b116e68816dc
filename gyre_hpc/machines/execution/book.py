"""What is over: every end is kept until the batch machine acknowledged it, and told again if it asks again."""

from collections.abc import Iterable

from gyre_hpc.machines.execution.records import Began, Finish, Forgotten, Record
from gyre_hpc.protocol.to_batch import Ended, ScoreState


class Book:
    """Ends of executions, each of its newest life here, from this life of the runner and from those before it."""

    def __init__(self) -> None:
        self._ended: dict[str, Ended] = {}
        self._unacked: set[str] = set()

    def read(self, records: Iterable[Record]) -> list[Ended]:
        """Take what was persisted; return the ends of executions that were under way when the runner died."""
        open_ones: dict[str, Began] = {}
        for record in records:
            match record:
                case Began(execution=execution):
                    open_ones[execution] = record
                case Finish(ended=ended):
                    open_ones.pop(ended.execution, None)
                    self.end(ended)
                case Forgotten(executions=executions):
                    for execution in executions:
                        open_ones.pop(execution, None)
                    self.acknowledge(executions)
        reason = "the runner died"
        return [
            Ended(began.execution, ScoreState.infra_error, None, reason=reason, life=began.life, is_lost=True)
            for began in open_ones.values()
        ]

    def end(self, ended: Ended) -> None:
        self._ended[ended.execution] = ended
        self._unacked.add(ended.execution)

    def knows(self, execution: str, life: int) -> bool:
        """This life of it, or a later one, has ended."""
        known = self._ended.get(execution)
        return known is not None and known.life >= life

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
