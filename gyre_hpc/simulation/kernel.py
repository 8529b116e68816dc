"""Event queue, simulated clock, dice. Nothing here knows what an event is about."""

import heapq
import random
import zlib
from array import array
from collections.abc import Callable

Call = Callable[[], None]


class Violation(AssertionError):
    """The protocol broke one of its promises; the text says which."""


class Kernel:
    """Runs events in order of time, equal times in order of their making: the same seed gives the same run."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.rng = random.Random(seed)
        self.num_events = 0
        self.print: Callable[[str], None] | None = None
        """Where a trace goes; None: nowhere."""
        self._times = array("d")
        self._words: list[str] = []
        self._ordinal = 0
        self._queue: list[tuple[float, int, Call]] = []

    def at(self, after_s: float, call: Call) -> None:
        """`call` after `after_s` seconds."""
        self._ordinal += 1
        heapq.heappush(self._queue, (self.now + after_s, self._ordinal, call))

    def run(self, is_over: Callable[[], bool], limit_s: float, limit_events: int) -> None:
        """Until `is_over`. Raises Violation when nothing is scheduled any more, or a limit is reached."""
        queue, pop = self._queue, heapq.heappop
        while not is_over():
            if not queue:
                raise Violation("nothing is scheduled, and the run is not over")
            self.now, _, call = pop(queue)
            if self.now > limit_s:
                raise Violation(f"the run is not over after {limit_s:g} simulated seconds")
            if self.num_events >= limit_events:
                raise Violation(f"the run is not over after {limit_events} events")
            self.num_events += 1
            call()

    def mark(self, name: str, kind: str, key: str) -> None:
        """Part of the run's fingerprint: what happens to whom now."""
        self._times.append(self.now)
        self._words += (name, kind, key)

    @property
    def fingerprint(self) -> int:
        return zlib.crc32("\n".join(self._words).encode(), zlib.crc32(self._times.tobytes()))

    def say(self, text: str) -> None:
        if self.print is not None:
            self.print(f"{self.now:10.4f} {text}")

    def short(self, mean_s: float) -> float:
        """A duration around `mean_s`, now and then ten times as long."""
        length = self.rng.uniform(0.3, 1.7) * mean_s
        return length * 10 if self.rng.random() < 0.02 else length
