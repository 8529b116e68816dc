"""What the newest assignment wants to run here."""

from collections.abc import Iterator

from gyre_hpc.machines.execution.life import Life
from gyre_hpc.protocol.to_runner import Assignment, Begin


class Wanted:
    """Numbered documents; only newer ones count."""

    def __init__(self) -> None:
        self.number = -1
        self.oldest = -1
        """Lowest number that counts: an earlier life of the runner had this one."""
        self._begins: dict[str, Begin] = {}

    def take(self, assignment: Assignment) -> bool:
        """True if it is newer than what was known."""
        if assignment.number <= self.number or assignment.number < self.oldest:
            return False
        self.number = assignment.number
        self._begins = {begin.execution: begin for begin in assignment.begin}
        return True

    def __iter__(self) -> Iterator[Begin]:
        return iter(self._begins.values())

    def get(self, execution: str) -> Begin | None:
        """What is wanted of it, whichever life that is."""
        return self._begins.get(execution)

    def now(self, life: Life) -> Begin | None:
        """What is wanted of this very life; None: it is wanted no more."""
        begin = self._begins.get(life.id)
        return begin if begin is not None and begin.life == life.number else None
