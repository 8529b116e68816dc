"""Records on their way to the journal; when the disk is full they wait and are written again in the same order."""

from gyre_hpc.machines.base import Effect, Persist
from gyre_hpc.protocol.journal import Record

RETRY_S = 1.0
TIMER = "journal"


class JournalQueue:
    """Invariant: records become durable in the order of `add`. The journal's writer fails everything behind a failure too."""

    def __init__(self) -> None:
        self.full = ""
        """Why nothing can be written now."""
        self._next = 0
        self._written: dict[str, Record] = {}
        self._failed: list[Record] = []
        self._held: list[Record] = []

    def add(self, record: Record) -> list[Effect]:
        """Write it now, or once the disk takes records again."""
        if self.full:
            self._held.append(record)
            return []
        self._next += 1
        key = f"journal/{self._next}"
        self._written[key] = record
        return [Persist(key, record)]

    def persisted(self, key: str) -> Record:
        return self._written.pop(key)

    def failed(self, key: str, reason: str) -> None:
        """Failures arrive in order."""
        self.full = reason or "the journal cannot be written"
        self._failed.append(self._written.pop(key))

    def retry(self) -> list[Effect]:
        """Write what waits, unless the fate of earlier writes is still open."""
        if self._written:
            return []
        records, self.full, self._failed, self._held = self._failed + self._held, "", [], []
        return [effect for record in records for effect in self.add(record)]
