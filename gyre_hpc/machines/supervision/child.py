"""One child as the supervision machine sees it."""

import enum
from collections import deque
from dataclasses import dataclass, field

from gyre_hpc.protocol.node_map import FIRST
from gyre_hpc.protocol.supervision import ChildOrder, Entry, Wanted


class Policy(enum.Enum):
    """What happens after an end nobody asked for."""

    service = "service"
    cell = "cell"
    extra = "extra"


class ChildState(enum.Enum):
    """Lifecycle.

    waiting -> starting -> live -> stopping -> waiting (service) | lost (cell) | over (set aside, run finished)
               starting | live ------------> waiting | lost | over (extra with code 0)
               starting | live -> stopping   (one part of a cell over several nodes ended: the others follow)
    lost ---------> starting | waiting (ordered again after it failed again and again)
    """

    waiting = "waiting"
    starting = "starting"
    live = "live"
    stopping = "stopping"
    lost = "lost"
    over = "over"


RUNNING = frozenset({ChildState.starting, ChildState.live, ChildState.stopping})


@dataclass(frozen=True, kw_only=True, slots=True)
class PartEnd:
    """The first end of a part of an incarnation."""

    reason: str
    code: int
    asked: bool
    """We wanted it."""


@dataclass(kw_only=True, slots=True)
class Child:
    """Mutable; owned by the machine. An incarnation is spent by each start, so no two starts share a number."""

    name: str
    policy: Policy
    places: tuple[str, ...] = (FIRST,)
    """Supervisors of its nodes; part i is on the i-th."""
    incarnation: int = 0
    """0 = not started yet; the first start is 1."""
    state: ChildState = ChildState.waiting
    url: str = ""
    lost: str = ""
    """Why the newest incarnation ended or is being ended; empty while it is well."""
    restart_wanted: bool = False
    set_aside: bool = False
    is_held: bool = False
    """A person looks at it: it is neither ended nor started again on the controller's order."""
    directory: int = -1
    """Number of the newest directory that this incarnation says it has."""
    silent_ticks: int = 0
    failures: deque[float] = field(default_factory=deque)
    """Times of the failures that still count against the crash limit."""
    parts: set[int] = field(default_factory=set)
    """Of this incarnation: started, and not known to be gone."""
    rendezvous: str = ""
    """Where part 0 of this incarnation listens, once it said so."""
    is_killing: bool = False
    stacks_asked: int = 0
    """How often this incarnation was to write its Python stacks."""
    stacks_again_at: float = 0.0
    """Not asked by the controller before this."""
    is_writing_stacks: bool = False
    """On this node. It is told to end after them: that signal ends what has no handler for it yet."""
    is_told: bool = False
    """The part on this node was told to end."""
    end: PartEnd | None = None
    """Set once the first part of this incarnation ended."""

    @property
    def is_running(self) -> bool:
        return self.state in RUNNING

    def key(self, verb: str) -> str:
        """Name of a timer or action of this incarnation."""
        return f"{verb}/{self.name}/{self.incarnation}"

    def entry(self) -> Entry:
        url = self.url if self.state is ChildState.live else ""
        return Entry(self.name, self.incarnation, url, self.lost, self.set_aside, self.is_held)

    def part_at(self, node: str) -> int | None:
        """Its living part there: a node has at most one."""
        return next((part for part in self.parts if self.places[part] == node), None)

    def order_for(self, node: str) -> ChildOrder | None:
        """What that node should do about it; None: nothing."""
        part = self.part_at(node)
        if part is None:
            return None
        wanted = Wanted.kill if self.is_killing else Wanted.terminate if self.state is ChildState.stopping else Wanted.run
        return ChildOrder(self.name, self.incarnation, wanted, part, self.rendezvous if part else "", self.stacks_asked)

    def part_ended(self, part: int, reason: str, code: int) -> bool:
        """It is gone; True if no other one is left."""
        self.parts.discard(part)
        if self.end is None:
            self.end = PartEnd(reason=reason, code=code, asked=self.state is ChildState.stopping)
        return not self.parts

    def count_failure(self, now: float, window_s: float) -> int:
        """Remember one failure; return how many lie within the window."""
        self.failures.append(now)
        while self.failures[0] < now - window_s:
            self.failures.popleft()
        return len(self.failures)


def ending(code: int) -> str:
    """Words for an exit code."""
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"
