"""A server that has requests and says nothing: it is asked whether it is well.

Requests may stand in its queue for long, so an answer that does not come proves nothing; that nobody gets a token does, once the
server does not answer a question either (/health_generate: HTTP side and scheduler).
"""

import asyncio
from collections.abc import Awaitable, Callable

PERIOD_S = 30.0
ANSWER_S = 120.0
"""For one token of its own: a step of the scheduler may be a long prefill."""


class Watch:
    """Lifecycle: start -> close."""

    def __init__(
        self,
        *,
        num_heard: Callable[[], int | None],
        is_well: Callable[[float], Awaitable[bool]],
        on_lost: Callable[[str], None],
        period_s: float = PERIOD_S,
        answer_s: float = ANSWER_S,
    ) -> None:
        """num_heard: chunks so far; None: nothing is asked of the server now."""
        self._num_heard, self._is_well, self._on_lost = num_heard, is_well, on_lost
        self._period_s, self._answer_s = period_s, answer_s
        self._closed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        self._closed.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _run(self) -> None:
        before = None
        while not await self._passes():
            heard = self._num_heard()
            if heard is not None and heard == before and not await self._is_well(self._answer_s) and heard == self._num_heard():
                self._on_lost(f"no token and no sign of health for {self._period_s + self._answer_s:g} s")
                return
            before = heard

    async def _passes(self) -> bool:
        """One period; True: it is over for good."""
        closed = asyncio.create_task(self._closed.wait())
        try:
            done, _ = await asyncio.wait((closed,), timeout=self._period_s)
        finally:
            closed.cancel()
        return bool(done)
