"""One child as the supervision machine sees it."""

import enum
from collections import deque
from dataclasses import dataclass, field

from gyre_hpc.protocol.supervision import Entry


class Policy(enum.Enum):
    """What happens after an end nobody asked for."""

    service = "service"
    cell = "cell"
    extra = "extra"


class ChildState(enum.Enum):
    """Lifecycle.

    waiting -> starting -> live -> stopping -> waiting (service) | lost (cell) | over (set aside, run finished)
               starting | live ------------> waiting | lost | over (extra with code 0)
    lost ---------> starting | waiting (ordered again after it failed again and again)
    """

    waiting = "waiting"
    starting = "starting"
    live = "live"
    stopping = "stopping"
    lost = "lost"
    over = "over"


RUNNING = frozenset({ChildState.starting, ChildState.live, ChildState.stopping})


@dataclass(kw_only=True, slots=True)
class Child:
    """Mutable; owned by the machine. An incarnation is spent by each start, so no two starts share a number."""

    name: str
    policy: Policy
    incarnation: int = 0
    """0 = not started yet; the first start is 1."""
    state: ChildState = ChildState.waiting
    url: str = ""
    lost: str = ""
    """Why the newest incarnation ended or is being ended; empty while it is well."""
    restart_wanted: bool = False
    set_aside: bool = False
    silent_ticks: int = 0
    failures: deque[float] = field(default_factory=deque)
    """Times of the failures that still count against the crash limit."""

    @property
    def is_running(self) -> bool:
        return self.state in RUNNING

    def key(self, verb: str) -> str:
        """Name of a timer or action of this incarnation."""
        return f"{verb}/{self.name}/{self.incarnation}"

    def entry(self) -> Entry:
        url = self.url if self.state is ChildState.live else ""
        return Entry(self.name, self.incarnation, url, self.lost, self.set_aside)

    def count_failure(self, now: float, window_s: float) -> int:
        """Remember one failure; return how many lie within the window."""
        self.failures.append(now)
        while self.failures[0] < now - window_s:
            self.failures.popleft()
        return len(self.failures)


def ending(code: int) -> str:
    """Words for an exit code."""
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"
