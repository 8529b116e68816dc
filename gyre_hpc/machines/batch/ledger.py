"""Who holds which micro-batch: ready -> leased(cell) -> accumulated(cell) -> consolidated.

Invariants (each has a test):
  - an id is in exactly one state, held by at most one cell under that cell's current fence;
  - voiding a cell returns everything it holds, leased and accumulated, and nothing else;
  - `covers` is true only for manifests that together are the batch exactly once.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass


class EntryState(enum.Enum):
    ready = "ready"
    leased = "leased"
    accumulated = "accumulated"


@dataclass(kw_only=True, slots=True)
class Entry:
    """One micro-batch of the open batch."""

    id: str
    num_tokens: int
    num_targets: int
    state: EntryState = EntryState.ready
    cell: str = ""
    trained_by: str = ""
    """Cell that computed it (stays when the sum is handed in)."""


class Ledger:
    """Micro-batches of one batch."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, id: str, num_tokens: int, num_targets: int) -> None:
        assert id not in self._entries, f"micro-batch {id} added twice"
        self._entries[id] = Entry(id=id, num_tokens=num_tokens, num_targets=num_targets)

    def lease(self, cell: str, most: int) -> list[Entry]:
        """Lease ready micro-batches to `cell` until it has `most` leased; return the new ones."""
        room = most - len(self.leased(cell))
        new = [entry for entry in self._entries.values() if entry.state is EntryState.ready][: max(room, 0)]
        for entry in new:
            entry.state, entry.cell = EntryState.leased, cell
        return new

    def leased(self, cell: str) -> list[Entry]:
        return self._of(cell, EntryState.leased)

    def accumulated(self, cell: str) -> list[Entry]:
        return self._of(cell, EntryState.accumulated)

    def accumulate(self, cell: str, ids: Iterable[str]) -> list[Entry]:
        """`cell` reports them in its sum; return those that are new. Ids it does not hold are ignored: they were voided."""
        new = []
        for id in ids:
            entry = self._entries.get(id)
            if entry is not None and entry.state is EntryState.leased and entry.cell == cell:
                entry.state, entry.trained_by = EntryState.accumulated, cell
                new.append(entry)
        return new

    def void(self, cell: str) -> int:
        """Return all that `cell` holds to ready; the caller raises its fence. Returns how many."""
        entries = [entry for entry in self._entries.values() if entry.cell == cell]
        for entry in entries:
            entry.state, entry.cell, entry.trained_by = EntryState.ready, "", ""
        return len(entries)

    def transfer(self, cell: str, to: str, ids: Iterable[str]) -> bool:
        """`cell` handed its sum in to `to`. False (nothing changes) unless ids are exactly what it has accumulated."""
        entries = self.accumulated(cell)
        if {entry.id for entry in entries} != set(ids):
            return False
        for entry in entries:
            entry.cell = to
        return True

    def waiting(self) -> list[Entry]:
        return [entry for entry in self._entries.values() if entry.state is EntryState.ready]

    def is_accumulated(self) -> bool:
        """Every micro-batch is in some sum."""
        return all(entry.state is EntryState.accumulated for entry in self._entries.values())

    def is_open(self) -> bool:
        """Some micro-batch is leased or accumulated."""
        return any(entry.state is not EntryState.ready for entry in self._entries.values())

    def holders(self) -> set[str]:
        """Cells that hold anything."""
        return {entry.cell for entry in self._entries.values() if entry.cell}

    def covers(self, manifests: Iterable[Iterable[str]]) -> bool:
        """The manifests together are the batch exactly once."""
        ids = [id for manifest in manifests for id in manifest]
        return len(ids) == len(self._entries) and set(ids) == set(self._entries)

    def ids(self) -> list[str]:
        return list(self._entries)

    def entries(self) -> list[Entry]:
        return list(self._entries.values())

    def _of(self, cell: str, state: EntryState) -> list[Entry]:
        return [entry for entry in self._entries.values() if entry.cell == cell and entry.state is state]
