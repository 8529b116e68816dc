"""Another node as the supervision machine sees it."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

from gyre_hpc.machines.base import Effect, Send
from gyre_hpc.machines.supervision.child import Child
from gyre_hpc.protocol.supervision import ChildOrder, Entry, NodeOrders, NodeReport


class NodeState(enum.Enum):
    """Lifecycle: awaited -> here -> given_up. One that nobody planned begins here; when it comes back it is here again."""

    awaited = "awaited"
    here = "here"
    given_up = "given_up"


class Hearing(enum.Enum):
    """What a report is to us."""

    news = "news"
    old = "old"
    """Overtaken by a newer one, or of an earlier life."""
    first = "first"
    other_life = "other_life"
    """The supervisor there was started again: its earlier children are gone."""
    late = "late"
    """Of a node that was given up."""
    back = "back"
    """A node that was given up was started again."""


@dataclass(kw_only=True, slots=True)
class Node:
    """Mutable; owned by the machine. `name` is that of its supervisor."""

    name: str
    host: str = ""
    is_planned: bool = True
    state: NodeState = NodeState.awaited
    lost: str = ""
    """Why it was given up."""
    url: str = ""
    life: str = ""
    lives: set[str] = field(default_factory=set)
    """All that were heard of."""
    report: int = -1
    """Number of the newest report of this life."""
    directory: int = -1
    """Number of the newest directory that this life says it has."""
    silent_ticks: int = 0
    number: int = 0
    """Of the newest orders."""
    _told: tuple[tuple[ChildOrder, ...], bool, str] | None = None
    """What they said, and to which life."""
    _over_since: int = 0
    """Number of the first orders that said that all is over here; 0: none."""
    _seen: int = -1

    @property
    def title(self) -> str:
        """For people."""
        return self.host or self.name

    @property
    def has_left(self) -> bool:
        """It knows that all is over; what it does then needs nobody."""
        return self.state is not NodeState.here or 0 < self._over_since <= self._seen

    def entry(self) -> Entry:
        return Entry(self.name, len(self.lives), self.url, self.lost, self.state is NodeState.given_up)

    def hear(self, report: NodeReport) -> Hearing:
        """Take what a report says about the node itself."""
        if report.life != self.life:
            if report.life in self.lives:
                return Hearing.old
            hearing = Hearing.other_life if self.lives else Hearing.first
            self.lives.add(report.life)
            self.life, self.report, self._seen, self.directory = report.life, -1, -1, -1
        else:
            hearing = Hearing.news
        if report.number <= self.report:
            return Hearing.old
        self.report, self._seen, self.url, self.silent_ticks = report.number, report.seen, report.url, 0
        self.directory = max(self.directory, report.directory)
        self.host = report.offer.host or self.host
        if self.state is NodeState.given_up:
            return Hearing.late if hearing is Hearing.news else Hearing.back
        self.state = NodeState.here
        return hearing

    def orders(self, children: Iterable[Child], is_over: bool, *, again: bool, refused: str = "") -> list[Effect]:
        """Say what is wanted here, if that changed, or in any case when `again`. refused: why it has no part in the run."""
        if not self.url:
            return []
        wanted = tuple(order for child in children if (order := child.order_for(self.name)) is not None)
        document = (wanted, is_over, self.life)
        if document == self._told and not again:
            return []
        self._told = document
        self.number += 1
        if is_over and not wanted:
            self._over_since = self._over_since or self.number
        return [Send(self.name, NodeOrders(self.number, wanted, is_over, self.life, refused))]

    def give_up(self, reason: str) -> None:
        self.state, self.lost = NodeState.given_up, reason
