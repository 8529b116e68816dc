"""Prefill-decode disaggregation: a server that decodes, and another one that computes its prompts, as one Upstream.

Every request goes to both servers at once, under a bootstrap room of its own in which they meet. The prefilling one computes what the
decoding one does not have in its cache, draws the first token, and sends both; all further tokens are the decoding one's.

    room ──▶ both asked ──▶ KV came, its label is right ──▶ tokens are told ──▶ finished
                └ the prompt failed ──▶ ended on both sides ──▶ NotAnswered

Invariants:
  - no token is told before the prefilling server put the label of the decoding one's weights on the prompt;
  - KV of other weights is not sent at all: it would stay in the decoding server's cache;
  - a prefilling server that fails costs the requests it was asked for, never the server that decodes;
  - once `generate` is left, neither server has anything of the request.
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gyre_hpc.engines.sglang.parts import Bootstrap, Chunk, NotAnswered, Prefill, Refused, ServerLost, Upstream
from gyre_hpc.engines.sglang.site import Part
from gyre_hpc.errors import GyreError


@dataclass(frozen=True, kw_only=True, slots=True)
class Peer:
    """A Prefill: the engine of the prefilling server in this process, seen from the one that decodes."""

    host: str
    bootstrap_port: int
    prompt: Callable[[Mapping[str, Any], str], Awaitable[str]]
    """SGLangEngine.prompt of that engine."""

    async def where(self) -> Bootstrap:
        return Bootstrap(host=self.host, port=self.bootstrap_port)


@dataclass(frozen=True, kw_only=True, slots=True)
class Half:
    """What a cell is in a pair (engine.sglang.kv=pd)."""

    part: Part
    bootstrap_port: int = 0
    """Of the prefilling half: where its bootstrap server listens."""
    prefill: Prefill | None = None
    """Of the decoding half: the other one."""


class Paired:
    """The decoding server, whose prompts `prefill` computes. Everything but `generate` is about the decoding one alone.

    served: label of its weights; it does not change while there is a request."""

    def __init__(self, decode: Upstream, prefill: Prefill, *, served: Callable[[], str]) -> None:
        self._decode, self._prefill, self._served = decode, prefill, served
        self.abort, self.abort_all, self.flush = decode.abort, decode.abort_all, decode.flush
        self.release_memory, self.resume_memory = decode.release_memory, decode.resume_memory
        self.ask, self.info = decode.ask, decode.info
        self.is_well, self.close = decode.is_well, decode.close

    async def generate(self, body: Mapping[str, Any]) -> AsyncGenerator[Chunk, None]:
        """As Upstream's; a prompt that failed is NotAnswered."""
        request = _Request({**body, **_room(await self._prefill.where())}, self._decode, self._prefill, self._served())
        try:
            async with contextlib.aclosing(self._decode.generate(request.body)) as chunks:
                async for chunk in chunks:
                    if await request.may_be_told(chunk):
                        yield chunk
            request.check()
        finally:
            await request.close()


def _room(bootstrap: Bootstrap) -> dict[str, Any]:
    return {
        "bootstrap_host": bootstrap.host,
        "bootstrap_port": bootstrap.port,
        # Nobody may have had it before: a server takes whatever comes into a room for what it waits for there.
        "bootstrap_room": secrets.randbits(63),
    }


class _Request:
    """One request at both servers."""

    def __init__(self, body: Mapping[str, Any], decode: Upstream, prefill: Prefill, version: str) -> None:
        self.body, self._decode, self._version = body, decode, version
        self._known = asyncio.Event()
        """The decoding server can abort it."""
        self._failure: GyreError | None = None
        self._label = asyncio.create_task(_label(prefill, body, version))
        self._guard = asyncio.create_task(self._end_without_a_prompt())

    async def may_be_told(self, chunk: Chunk) -> bool:
        """Tokens wait until the prompt's label is known. After a failure nothing is told any more, until the answer has ended."""
        self._known.set()
        if chunk.ids and self._failure is None:
            await asyncio.wait((self._label,))
            self._compare()
        return self._failure is None

    def check(self) -> None:
        """After the answer's end. Raises NotAnswered, Refused."""
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        self._guard.cancel()
        self._label.cancel()
        await asyncio.wait((self._guard, self._label))

    def _compare(self) -> None:
        computed = self._label.result()
        if isinstance(computed, GyreError):
            self._failure = computed
        elif computed != self._version:
            # That KV may be in its cache from now on.
            raise ServerLost(f"KV of version {computed!r} came while {self._version!r} is served")

    async def _end_without_a_prompt(self) -> None:
        """A decoding server would wait for a lost peer until its own deadlines, minutes away."""
        await asyncio.wait((self._label,))
        failure = self._label.result()
        if isinstance(failure, GyreError):
            self._failure = failure
            await self._known.wait()
            # One that is gone says so in the answer itself.
            with contextlib.suppress(ServerLost):
                await self._decode.abort(self.body["rid"])


async def _label(prefill: Prefill, body: Mapping[str, Any], version: str) -> str | Refused | NotAnswered:
    try:
        return await prefill.prompt(body, version)
    except (Refused, NotAnswered) as error:
        return error
    except (GyreError, OSError) as error:
        return NotAnswered(f"the server that prefills: {error}")
