"""SetTimer and CancelTimer on asyncio: the only file of the project that asks the loop to call later."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


class Timers:
    """Named one-shot timers of one machine."""

    def __init__(self, fire: Callable[[str], None]) -> None:
        self._fire = fire
        self._handles: dict[str, asyncio.TimerHandle] = {}

    def set(self, key: str, after_s: float) -> None:
        """Fire `key` after `after_s` seconds; setting it again moves it."""
        self.cancel(key)
        self._handles[key] = asyncio.get_running_loop().call_later(after_s, self._due, key)

    def cancel(self, key: str) -> None:
        handle = self._handles.pop(key, None)
        if handle is not None:
            handle.cancel()

    def close(self) -> None:
        for key in list(self._handles):
            self.cancel(key)

    def _due(self, key: str) -> None:
        del self._handles[key]
        self._fire(key)


def after(seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
    """One unnamed timer, for backends whose compute is a wait (timed engine and trainer)."""
    return asyncio.get_running_loop().call_later(seconds, call)


def after_from_any_thread() -> Callable[[float, Callable[[], None]], None]:
    """`after` on the loop that runs here, for callers of whatever thread. What it returns raises RuntimeError once that loop is closed."""
    loop = asyncio.get_running_loop()

    def later(seconds: float, call: Callable[[], None]) -> None:
        loop.call_soon_threadsafe(loop.call_later, seconds, call)

    return later


def within(seconds: float) -> asyncio.Timeout:
    """`async with within(s)`: the deadline of a read that no library limits. Raises TimeoutError."""
    return asyncio.timeout(seconds)


async def pass_time(seconds: float) -> None:
    """The wait a timed backend's work stands for: replaces compute, never a decision."""
    await asyncio.sleep(seconds)


async def until(look: Callable[[], Found | None], every_s: float, within_s: float) -> Found:
    """What `look` finds on a shared file system, where nothing tells of a new file; looked for in a thread. Raises TimeoutError, and what
    `look` raises."""
    async with asyncio.timeout(within_s):
        while (found := await asyncio.to_thread(look)) is None:
            await asyncio.sleep(every_s)
    return found
