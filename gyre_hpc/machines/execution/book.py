"""What is over: an end is kept and told until the batch machine has acknowledged it, and again if it asks again.

Nothing is kept of what was acknowledged. Whoever wants it once more says so in an assignment that is older than the acknowledgement, and
those count for nothing, also for the next life of this runner: the number is in the record.
"""

from collections.abc import Iterable

from gyre_hpc.machines.execution.records import Began, Finish, Forgotten, Record
from gyre_hpc.protocol.identity import parse_address
from gyre_hpc.protocol.to_batch import Ended, ScoreState


class Book:
    """Ends of executions that are not acknowledged, each of its newest life here, from this life of the runner and from those before it."""

    def __init__(self) -> None:
        self._ended: dict[str, Ended] = {}
        self.assignment = -1
        """Number of an assignment that an earlier life of the runner had; what it took from later ones is known, too."""

    def __len__(self) -> int:
        return len(self._ended)

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
                case Forgotten(executions=addresses, assignment=assignment):
                    for execution, life in map(parse_address, addresses):
                        if execution in open_ones and open_ones[execution].life <= life:
                            del open_ones[execution]
                    self.acknowledge(addresses)
                    self.assignment = max(self.assignment, assignment)
        reason = "the runner died"
        return [
            Ended(began.execution, ScoreState.infra_error, None, reason=reason, life=began.life, is_lost=True)
            for began in open_ones.values()
        ]

    def end(self, ended: Ended) -> None:
        self._ended[ended.execution] = ended

    def knows(self, execution: str, life: int) -> bool:
        """This life of it, or a later one, has ended, and is told until that is acknowledged."""
        known = self._ended.get(execution)
        return known is not None and known.life >= life

    def acknowledge(self, addresses: Iterable[str]) -> tuple[str, ...]:
        """Forget the ends of these lives; return those that were known. A later life may have ended here meanwhile: it stays."""
        known: list[str] = []
        for address in sorted(set(addresses)):
            execution, life = parse_address(address)
            if execution in self._ended and self._ended[execution].life <= life:
                del self._ended[execution]
                known.append(address)
        return tuple(known)

    def unacknowledged(self) -> tuple[Ended, ...]:
        return tuple(self._ended[execution] for execution in sorted(self._ended))
