"""SGLang as its engine sees it, without a server: requests that the test lets in, lets compute and lets speak.

A token follows from the weights served and everything before it, so that a label can be checked. What would end a real server, or
make it forget something, is an AssertionError here, or is forgotten as there.
"""

import asyncio
import zlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from gyre_hpc.engines.sglang.parts import Address, Chunk, ServerLost
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.to_batch import RankMemory

VOCAB = 50


def token_after(version: str, ids: list[int]) -> int:
    return zlib.crc32(f"{version} {ids}".encode()) % VOCAB


class Served:
    """One upstream request."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.body = dict(body)
        self.rid, self.prompt = str(body["rid"]), list(body["input_ids"])
        self.params = dict(body["sampling_params"])
        self.ids: list[int] = []
        self.num_sent = 0
        self.is_known = False
        self.events: asyncio.Queue[Chunk | Exception] = asyncio.Queue()
        self.cached = 0

    @property
    def is_full(self) -> bool:
        return len(self.ids) >= self.params["max_new_tokens"]


class ScriptedUpstream:
    def __init__(self) -> None:
        self.version = "default"
        self.requests: dict[str, Served] = {}
        """Those that arrived and have not ended."""
        self.lets_in = True
        self.is_released = False
        self.lingering: list[str] = []
        """Of connections that were closed before the answer's end: a real server has them until its scheduler hears of it."""
        self.num_computed = 0
        self.num_lost = 0
        """Tokens computed for connections that were closed before they were sent."""
        self.aborts: list[str] = []
        self.may_abort = asyncio.Event()
        self.may_abort.set()
        self._used: set[str] = set()
        self.log: list[str] = []

    # What the test does

    def let_in(self) -> None:
        """Those that arrived are known from now on."""
        for request in self.requests.values():
            if not request.is_known:
                request.is_known = True
                request.events.put_nowait(Chunk(start=0, ids=(), logprobs=(), cached=0, version=""))

    def compute(self, num_tokens: int, rid: str = "") -> None:
        """So many tokens more of every known request (of those whose rid begins so); not sent yet."""
        for request in self._known(rid):
            for _ in range(num_tokens):
                if not request.is_full:
                    request.ids.append(token_after(self.version, request.prompt + request.ids))
                    self.num_computed += 1

    def speak(self, rid: str = "", repeat: int = 0) -> None:
        """Send what was computed; a request that has all its tokens ends. repeat: of those sent before."""
        for request in list(self._known(rid)):
            finish = {"type": "length", "length": len(request.ids)} if request.is_full else None
            if finish is not None or request.num_sent < len(request.ids):
                self._send(request, finish, repeat)

    def end(self, rid: str, finish: dict[str, Any]) -> None:
        """End a request as the server itself may."""
        for request in list(self._known(rid)):
            self._send(request, finish)

    def say(self, rid: str, event: Chunk | Exception) -> None:
        for request in self._known(rid):
            request.events.put_nowait(event)

    def die(self) -> None:
        for request in self.requests.values():
            request.events.put_nowait(ServerLost("connection reset"))

    # What the engine asks

    async def generate(self, body: Mapping[str, Any]) -> AsyncGenerator[Chunk, None]:
        assert not self.is_released, "a request to a server without memory"
        assert body["rid"].endswith(".") and body["rid"] not in self._used, "rids are compared by beginning"
        self._used.add(body["rid"])
        request = self.requests[body["rid"]] = Served(body)
        if self.lets_in:
            self.let_in()
        try:
            while True:
                event = await request.events.get()
                if isinstance(event, Exception):
                    raise event
                yield event
                if event.finish is not None:
                    return
        finally:
            if self.requests.pop(request.rid, None) is not None:
                self.lingering.append(request.rid)
                self.num_lost += len(request.ids) - request.num_sent

    async def abort(self, rid: str) -> None:
        self.aborts.append(rid)
        await self.may_abort.wait()
        for request in list(self._known(rid)):
            self._send(request, {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None})

    async def abort_all(self) -> None:
        await self.abort("")

    async def flush(self, deadline_s: float) -> bool:
        self.log.append("flush")
        if not self.requests:
            self.lingering.clear()
        return not self.requests

    async def release_memory(self) -> None:
        assert not self.requests and not self.lingering and not self.is_released, "the server ended"
        self.is_released = True
        self.log.append("release")

    async def resume_memory(self) -> None:
        assert self.is_released, "the server ended"
        self.is_released = False
        self.log.append("resume")

    async def ask(self, path: str, body: Mapping[str, Any], deadline_s: float) -> Any:
        raise AssertionError(path)

    async def info(self) -> dict[str, Any]:
        return {"max_total_num_tokens": 4096}

    async def is_well(self, deadline_s: float) -> bool:
        return True

    async def close(self) -> None:
        self.log.append("close")

    def _known(self, rid: str) -> list[Served]:
        return [request for request in self.requests.values() if request.is_known and request.rid.startswith(rid)]

    def _send(self, request: Served, finish: dict[str, Any] | None, repeat: int = 0) -> None:
        start = max(request.num_sent - repeat, 0)
        ids = request.ids[start:]
        request.num_sent = len(request.ids)
        if finish is not None:
            del self.requests[request.rid]
        request.events.put_nowait(
            Chunk(
                start=start,
                ids=tuple(ids),
                logprobs=tuple(-float(token) for token in ids),
                cached=request.cached,
                version=self.version,
                finish=finish,
            )
        )


class ScriptedHolder:
    """Holder of a server that is not there."""

    def __init__(self, noted: str = "") -> None:
        self.was_adopted, self.noted = bool(noted), noted
        self.states: list[str] = []
        self.reason: str | None = None
        self.is_stopped = False

    async def start(self) -> Address:
        return Address(url="http://127.0.0.1:1", key="key")

    def note(self, state: str) -> None:
        self.states.append(state)

    def failure(self) -> str | None:
        return self.reason

    def pids(self) -> tuple[int, ...]:
        return ()

    async def stop(self) -> None:
        self.is_stopped = True


class ScriptedSender:
    """Weights are labels here."""

    def __init__(self, upstream: ScriptedUpstream) -> None:
        self._upstream = upstream
        self.error: Exception | None = None
        self.is_joined = False

    async def join(self, upstream: Any) -> None:
        self.is_joined = True

    async def send(self, upstream: Any, version: Version, tensors: Mapping[str, Any], *, flush: bool) -> None:
        assert self.is_joined and not self._upstream.requests and not self._upstream.lingering, "weights change at zero requests only"
        assert not self._upstream.is_released
        if self.error is not None:
            raise self.error
        self._upstream.version = str(version)
        self._upstream.log.append(f"weights {version}{' and flush' if flush else ''}")

    async def close(self) -> None:
        self.is_joined = False


class NoMemory:
    async def measure(self) -> list[RankMemory]:
        return [RankMemory(rank=0, free=1, used=0)]
