"""Prompts that this server computes for another one (prefill-decode disaggregation): the side of the server that prefills.

Invariants: none begins while the server stands still; what ends badly ends that request alone, unless the server itself is gone.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from gyre_hpc.engines.sglang.parts import NotAnswered, Refused, ServerLost, Upstream


class Guests:
    def __init__(self, upstream: Upstream, *, on_lost: Callable[[str], None]) -> None:
        self._upstream, self._on_lost = upstream, on_lost
        self._tasks: set[asyncio.Task[str]] = set()
        self.refusal = ""
        """Why none may begin; empty: they may."""
        self._told = ""
        """Why those that were stopped last were; `refusal` may be empty again when they hear of it."""
        self.num_heard = 0
        """Chunks so far."""
        self.may_linger = False
        """One was asked for since the server last said that it is idle."""

    def __len__(self) -> int:
        return len(self._tasks)

    async def prompt(self, body: Mapping[str, Any], version: str) -> str:
        """See parts.Prefill; `version` is what the server has."""
        if self.refusal:
            raise NotAnswered(f"the server that prefills stands still: {self.refusal}")
        self.may_linger = True
        task = asyncio.create_task(self._read(body))
        self._tasks.add(task)
        try:
            await asyncio.wait((task,))
        finally:
            task.cancel()
            await asyncio.wait((task,))
            self._tasks.discard(task)
        if task.cancelled():
            raise NotAnswered(f"the server that prefills was told to stand still: {self._told}")
        try:
            label = task.result()
        except ServerLost as error:
            self._on_lost(str(error))
            raise NotAnswered(f"the server that prefills is lost: {error}") from error
        if label != version:
            self._on_lost(f"a prompt of version {label!r} while {version!r} is served")
        return label

    def stop(self, why: str) -> None:
        """All of them, soon; none begins until `refusal` is empty again."""
        self.refusal = self._told = why
        for task in self._tasks:
            task.cancel()

    async def end(self, why: str) -> None:
        """`stop`, and wait until nobody here wants anything of the server. A request whose connection was closed it may have a
        moment longer: whoever changes what the server has waits until it says that it is idle (`may_linger`)."""
        self.stop(why)
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _read(self, body: Mapping[str, Any]) -> str:
        async with contextlib.aclosing(self._upstream.generate(body)) as chunks:
            async for chunk in chunks:
                self.num_heard += 1
                if chunk.finish is not None:
                    return _version(chunk.version, chunk.finish)
        raise ServerLost("an answer broke off")


def _version(version: str, finish: Mapping[str, Any]) -> str:
    """Of a prompt that ended so. Raises NotAnswered, Refused."""
    if finish["type"] != "abort":
        return version
    code = finish.get("status_code")
    kind = Refused if isinstance(code, int) and 400 <= code < 500 else NotAnswered
    raise kind(f"the server that prefills: {finish.get('message')}")
