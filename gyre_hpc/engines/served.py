"""The part of an engine that is the same for every kind of ours: HTTP surface, gate, live calls.

A kind adds how calls are computed (`submit`, `abort`, ...) and what sleeping and weights mean to it.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from gyre_hpc.engines.backend import Loads, PauseMode
from gyre_hpc.engines.base import Engine
from gyre_hpc.engines.calls import CallBook, LiveCall
from gyre_hpc.engines.http_surface import HttpSurface
from gyre_hpc.engines.stopping import Decode


class ServedEngine(Engine):
    """An Engine that is also the Backend of its own HTTP surface."""

    def __init__(self, *, run_token: str, host: str, port: int, max_context: int, vocab_size: int | None, decode: Decode | None) -> None:
        self.book = CallBook()
        self.max_context, self.vocab_size, self.decode = max_context, vocab_size, decode
        self._surface = HttpSurface(self, run_token, host, port)

    async def start(self) -> str:
        return await self._surface.start()

    def add_to(self, app: web.Application) -> None:
        """Instead of `start`: serve on the application of a process that has an address already."""
        self._surface.add_to(app)

    def cut(self) -> None:
        self.book.is_open = False
        self._surface.cut()

    async def close(self) -> None:
        self.book.is_open = False
        await self.abort_all({})
        await self._surface.close()

    def open_admission(self, term: int) -> None:
        self.book.term, self.book.is_open = term, True

    def close_admission(self, term: int) -> None:
        self.book.term, self.book.is_open = term, False

    def num_live(self) -> int:
        return len(self.book)

    async def abort_all(self, moved: Mapping[str, str]) -> int:
        calls = self.book.live()
        for call in calls:
            self.abort(call, "engine stops serving", moved.get(call.request.call, ""))
        for call in calls:
            await call.gone.wait()
        return len(calls)

    @abstractmethod
    def submit(self, call: LiveCall) -> None: ...

    @abstractmethod
    def abort(self, call: LiveCall, reason: str, moved_to: str = "") -> None: ...

    @abstractmethod
    async def pause(self, mode: PauseMode) -> None: ...

    @abstractmethod
    async def resume(self) -> None: ...

    @abstractmethod
    async def flush_cache(self) -> bool: ...

    @abstractmethod
    async def relabel(self, version: str) -> None: ...

    @abstractmethod
    def version_text(self) -> str: ...

    @abstractmethod
    def loads(self) -> Loads: ...

    @abstractmethod
    def facts(self) -> dict[str, Any]: ...

    @abstractmethod
    def failure(self) -> str | None: ...
