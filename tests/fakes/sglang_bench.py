"""An SGLang engine over a scripted server, driven without HTTP between them and without a clock."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from gyre_hpc.engines.calls import LiveCall
from gyre_hpc.engines.request import Request
from gyre_hpc.engines.sglang.engine import SGLangEngine
from gyre_hpc.engines.sglang.parts import Prefill
from gyre_hpc.engines.sglang.prefill import Paired
from gyre_hpc.protocol.identity import Version
from tests.fakes.memory_store import MemoryStore
from tests.fakes.scripted_upstream import VOCAB, NoMemory, ScriptedHolder, ScriptedSender, ScriptedUpstream, token_after

VERSIONS = tuple(Version(0, step) for step in range(40))
TURNS = 40
"""Turns of the loop after which nothing moves any more without the test."""


class Bench:
    def __init__(self, noted: str = "", peer: Prefill | None = None, **more: Any) -> None:
        """peer: computes its prompts."""
        self.upstream = upstream = ScriptedUpstream()
        self.holder, self.sender = ScriptedHolder(noted), ScriptedSender(self.upstream)
        self.upstream.is_released = noted == "asleep"
        self.engine = SGLangEngine(
            holder=self.holder,
            connect=lambda address: Paired(upstream, peer, served=self._served) if peer is not None else upstream,
            sender=self.sender,
            memory=NoMemory(),
            store=MemoryStore({version: {} for version in VERSIONS}),
            run_token="token",
            host="127.0.0.1",
            max_context=2048,
            vocab_size=VOCAB,
            **more,
        )
        self.url = ""
        self.calls: list[LiveCall] = []
        self._answering: list[asyncio.Task[None]] = []

    def ask(self, num_tokens: int = 20, prompt: tuple[int, ...] = (1, 2, 3), **more: Any) -> LiveCall:
        """Take a call, as the surface does."""
        defaults: dict[str, Any] = {
            "rid": f"r{len(self.calls)}",
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": 0,
            "stop_ids": frozenset(),
            "key": b"key",
            "position": 0,
            "return_logprob": True,
            "stream": True,
            "incremental": True,
        }
        request = Request(input_ids=prompt, max_new_tokens=num_tokens, **(defaults | more))
        call = self.engine.book.take(request, self.engine.version_text())
        self.calls.append(call)
        self.engine.submit(call)
        self._answering.append(asyncio.create_task(self._answer(call)))
        return call

    def _served(self) -> str:
        return self.engine.version_text()

    async def settle(self) -> None:
        """Let everything happen that can."""
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def finish(self) -> None:
        """Let all calls end."""
        self.upstream.lets_in = True
        while any(not call.is_over for call in self.calls):
            self.upstream.let_in()
            self.upstream.compute(5)
            self.upstream.speak()
            await self.settle()

    async def _answer(self, call: LiveCall) -> None:
        while not call.is_over:
            call.changed.clear()
            await call.changed.wait()
        self.engine.book.drop(call)


def check_truth(call: LiveCall) -> None:
    """Every token is what the version that its span names says after the prompt and all tokens before it."""
    answer, ids = call.answer, list(call.request.input_ids)
    place = 0
    for version, start, end in answer.spans:
        assert start == place < end
        for token in answer.ids[start:end]:
            assert token == token_after(version, ids)
            ids.append(token)
        place = end
    assert place == len(answer.ids) == len(answer.logprobs)
    assert answer.logprobs == [-float(token) for token in answer.ids]


@asynccontextmanager
async def bench(noted: str = "", **more: Any) -> AsyncIterator[Bench]:
    """Awake with version 0.0."""
    one = Bench(noted, **more)
    one.url = await one.engine.start()
    await one.engine.wake(VERSIONS[0])
    try:
        yield one
    finally:
        await one.engine.close()


def run(test: Callable[[Bench], Awaitable[None]], **more: Any) -> None:
    async def main() -> None:
        async with bench(**more) as one:
            await test(one)

    asyncio.run(main())
