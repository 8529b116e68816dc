"""A clock and timer that jump: a timer fires as soon as the loop is free, and the clock says it took its time."""

import asyncio
import heapq
import itertools
from collections.abc import Callable


class VirtualHandle:
    def __init__(self, due: float, callback: Callable[[], None]) -> None:
        self.due, self.callback, self.is_cancelled = due, callback, False

    def cancel(self) -> None:
        self.is_cancelled = True


class VirtualTime:
    """`runs` False: nothing fires but by `fire`."""

    def __init__(self, runs: bool = True) -> None:
        self.seconds, self._runs = 0.0, runs
        self._order = itertools.count()
        self._handles: list[tuple[float, int, VirtualHandle]] = []

    def now(self) -> float:
        return self.seconds

    def timer(self, seconds: float, callback: Callable[[], None]) -> VirtualHandle:
        handle = VirtualHandle(self.seconds + seconds, callback)
        heapq.heappush(self._handles, (handle.due, next(self._order), handle))
        self._arm()
        return handle

    def run(self, runs: bool) -> None:
        self._runs = runs
        self._arm()

    def fire(self) -> bool:
        """Jump to the next timer; False when there is none."""
        while self._handles:
            _, _, handle = heapq.heappop(self._handles)
            if not handle.is_cancelled:
                self.seconds = max(self.seconds, handle.due)
                handle.callback()
                return True
        return False

    def _arm(self) -> None:
        if self._runs:
            asyncio.get_running_loop().call_soon(self._fire_if_running)

    def _fire_if_running(self) -> None:
        if self._runs:
            self.fire()
