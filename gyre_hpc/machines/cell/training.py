"""The cell's gradient sum for one (update, fence), and the micro-batches fetched for it.

Invariants: an id is begun at most once per (update, fence); what was handed in, spoiled or dropped is never counted
again under the same (update, fence): only a new fence or update makes a fresh sum.
"""

from dataclasses import dataclass, field

from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.to_batch import HandIn, MicroBatchFacts
from gyre_hpc.protocol.to_cell import Lease, Order

_SPEED_WEIGHT = 0.3
"""Weight of the newest micro-batch in the running speed."""


@dataclass(kw_only=True, slots=True)
class Sum:
    """Bookkeeping of the trainer's sum; the tensor itself is the trainer's."""

    update: int = -1
    fence: int = 0
    facts: list[MicroBatchFacts] = field(default_factory=list)
    begun: set[str] = field(default_factory=set)
    closed: str = ""
    """Why nothing more may be added under this (update, fence); empty: open."""
    dirty: bool = False
    """The trainer's tensor holds what no longer counts."""
    handed_in: bool = False
    version: Version | None = None
    """Parameters the gradients in it were computed with."""
    tokens_per_s: float = 0.0

    def stands_for(self, order: Order) -> bool:
        return (self.update, self.fence) == (order.update, order.fence)

    def restart(self, update: int, fence: int) -> None:
        """A zero sum for (update, fence); the same pair again only cleans the tensor."""
        self.dirty = False
        if (self.update, self.fence) == (update, fence):
            return
        self.update, self.fence, self.closed, self.handed_in = update, fence, "", False
        self.facts, self.begun = [], set()

    def add(self, facts: MicroBatchFacts, num_tokens: int, version: Version | None) -> None:
        self.facts.append(facts)
        self.version = version
        speed = num_tokens / max(facts.seconds, 1e-6)
        self.tokens_per_s += (speed - self.tokens_per_s) * (_SPEED_WEIGHT if self.tokens_per_s else 1.0)

    def spoil(self, reason: str) -> None:
        """Nobody knows what is in the tensor now."""
        self.facts, self.dirty, self.closed = [], True, self.closed or reason

    def mark_handed_in(self) -> None:
        self.handed_in = True
        self.spoil("handed in")

    def woke(self, restored: bool) -> None:
        """The trainer took parameters; without `restored` its tensor is zero."""
        if self.facts and not restored:
            self.spoil("dropped: the trainer took other parameters")
        self.dirty = False

    def can_restore(self, order: Order, version: Version) -> bool:
        """A sum kept in host memory over a role change still counts."""
        return bool(self.facts) and self.stands_for(order) and self.version == version

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(facts.id for facts in self.facts)

    def hand_in(self, cell: str) -> HandIn:
        return HandIn(cell=cell, fence=self.fence, ids=self.ids)

    def must_hand_in(self, order: Order) -> bool:
        return order.hand_in_to is not None and self.stands_for(order) and bool(self.facts)


@dataclass(kw_only=True, slots=True)
class Fetched:
    """Leased micro-batches on their way to the trainer."""

    ready: dict[str, int] = field(default_factory=dict)
    """id -> tokens, fetched and not begun."""
    key: str = ""
    """Key of the fetch in progress; empty: none."""
    lease: Lease | None = None
    """What it fetches."""
    trouble: str = ""
    """Why the last fetch failed; while set, the retry timer runs."""

    def drop_all_but(self, leases: tuple[Lease, ...]) -> None:
        listed = {lease.id for lease in leases}
        self.ready = {id: tokens for id, tokens in self.ready.items() if id in listed}

    def next_fetch(self, order: Order, begun: set[str], ahead: int) -> Lease | None:
        """The lease to fetch now, or None."""
        if self.key or self.trouble or len(self.ready) >= ahead:
            return None
        return next((lease for lease in order.leases if lease.id not in begun and lease.id not in self.ready), None)

    def next_to_accumulate(self, order: Order, begun: set[str]) -> str | None:
        return next((lease.id for lease in order.leases if lease.id in self.ready and lease.id not in begun), None)
