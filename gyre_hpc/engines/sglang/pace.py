"""How fast a server decodes by how many requests run, from when their tokens came. No clock of its own.

Seconds and tokens are added up under the number of requests that ran meanwhile. Tokens come some at a time, so those of a chunk
that began before another request came or went count under the later number: over many chunks that evens out.
"""

from collections.abc import Callable
from dataclasses import dataclass

MIN_S = 0.5
"""A figure of less time says nothing."""
KEPT_S = 60.0
"""Beyond so much time a figure forgets: what it adds up is halved."""


@dataclass(slots=True)
class _Sum:
    seconds: float = 0.0
    tokens: float = 0.0


class Pace:
    def __init__(self, now: Callable[[], float]) -> None:
        """now: seconds of a clock that never goes back."""
        self._now = now
        self._sums: dict[int, _Sum] = {}
        self._since = now()
        self.num_running = 0
        """Requests with a first token and no end."""
        self._steps = 0.0

    def first_token(self) -> None:
        self._pass()
        self.num_running += 1

    def end(self) -> None:
        """Of one that had a first token."""
        self._pass()
        self.num_running -= 1

    def tokens(self, number: int) -> None:
        """So many came, of one of those that run."""
        self._pass()
        assert self.num_running > 0
        self._sums[self.num_running].tokens += number
        self._steps += number / self.num_running

    def curve(self) -> dict[int, float]:
        """Tokens per second of all requests together, by their number."""
        return {running: one.tokens / one.seconds for running, one in self._sums.items() if one.seconds >= MIN_S and one.tokens}

    def num_steps(self) -> int:
        """Decode steps these tokens took when all that run go forward together, as they do in a batch that has room for all."""
        return round(self._steps)

    def _pass(self) -> None:
        now = self._now()
        passed, self._since = now - self._since, now
        if not self.num_running:
            return
        one = self._sums.setdefault(self.num_running, _Sum())
        one.seconds += passed
        if one.seconds > KEPT_S:
            one.seconds, one.tokens = one.seconds / 2, one.tokens / 2
