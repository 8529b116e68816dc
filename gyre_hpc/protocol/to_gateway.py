"""batch -> gateway: the routing table, valid for a lease."""

import msgspec

from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.train_groups import TrainGroups


class Row(msgspec.Struct, frozen=True):
    """One cell that takes calls."""

    cell: str
    url: str
    """Base URL of its engine surface (SGLang's native API)."""
    term: int
    version: Version
    purposes: tuple[str, ...] = ("train", "eval")
    capacity: int = 64
    """Calls at once beyond which it saturates; for routing."""


class Table(msgspec.Struct, frozen=True, tag="table"):
    """Where calls may go. Newer `number` replaces older. Without rows, calls wait with keep-alives."""

    number: int
    lease_s: float
    rows: tuple[Row, ...] = ()
    acked: int = -1
    """Facts of this shard up to this number are known to the batch machine and may be forgotten."""
    ended: tuple[str, ...] = ()
    """Executions that ended lately: their open calls may be cancelled, their state dropped."""
    over: TrainGroups = TrainGroups()
    """Groups that no execution of will ever run again: so that nobody need remember all of those that ended."""
    moved: tuple[tuple[str, str], ...] = ()
    """(call, cell): the KV of the conversation whose newest call is `call` lately went to `cell`; prefer that cell."""
