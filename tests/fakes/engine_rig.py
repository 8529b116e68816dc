"""Engines of every kind behind one way to ask them, for the contract tests.

`prescribed` is the embedded one with a script, `two_ranks` the embedded one whose model two processes hold together, `sglang`
one beside a real server (shared_sglang.py).
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
import torch

from gyre_hpc.config.schema import EngineConfig, ModelConfig
from gyre_hpc.engines.counter_random import uniform
from gyre_hpc.engines.embedded.engine import EmbeddedEngine
from gyre_hpc.engines.embedded.follower import EngineFollower
from gyre_hpc.engines.scripted import ScriptedEngine
from gyre_hpc.engines.served import ServedEngine
from gyre_hpc.engines.sglang.engine import SGLangEngine
from gyre_hpc.engines.stopping import Decode
from gyre_hpc.engines.timed import TimedEngine
from gyre_hpc.models import parameters, qwen3, qwen3_config
from gyre_hpc.protocol.identity import Version
from tests.fakes import second_rank, shared_sglang
from tests.fakes.memory_store import MemoryStore
from tests.fakes.virtual_time import VirtualTime

TOKEN = "run-token"
VOCAB = 64
LONG = 1500
"""Longer than any test lets a call get."""
V0, V1 = Version(0, 0), Version(0, 1)

MODEL = qwen3_config.from_model_config(
    ModelConfig(
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        intermediate_size=48,
        max_context=2048,
        init_std=0.2,
    ),
    VOCAB,
)
PARAMS = {V0: parameters.random_parameters(MODEL, 0), V1: parameters.random_parameters(MODEL, 1)}


_PIECES = [*"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123", "é", "日本", " the", "ing ", "\n", "", "", "<|end|>"]


def decode(ids: Sequence[int]) -> str:
    """Characters, words, a mark, and two ids without text."""
    return "".join(_PIECES[i] for i in ids)


def full_forward_logprobs(version: Version, ids: list[int], start: int, temperature: float = 1.0) -> torch.Tensor:
    """Log-probs of ids[start:] by the training forward."""
    with torch.no_grad():
        rows = torch.arange(start, len(ids))
        return qwen3.target_logprobs(PARAMS[version], MODEL, torch.tensor(ids), [len(ids)], rows, temperature)


def script(prompt: tuple[int, ...], key: bytes) -> list[int]:
    """The scripted engine's answers: long, and different for every prompt and key."""
    return [int(uniform(key + bytes(prompt[:16]), n) * VOCAB) for n in range(LONG + 100)]


class Rig:
    """One serving engine, awake with V0, admission open in term 1."""

    def __init__(self, engine: ServedEngine, url: str, session: aiohttp.ClientSession, time: VirtualTime | None) -> None:
        self.engine, self.url, self.session, self._time = engine, url, session, time
        self.draws_by_key = engine.capabilities.sampling == "counter"
        """False: what is asked without a temperature is asked greedily, so that tests can say what comes."""
        self.releases_memory = not isinstance(engine, SGLangEngine)
        """On a CPU SGLang gives nothing back."""

    def skip_unless_it_draws_by_key(self) -> None:
        if not self.draws_by_key:
            pytest.skip("this engine draws by no key")

    def body(self, ids: list[int], num_tokens: int, key: str = "aa", position: int = 0, **more: Any) -> dict[str, Any]:
        top = {name: more.pop(name) for name in ("rid", "stream", "incremental") if name in more}
        custom = {"key": key, "position": position}
        greedy = {} if self.draws_by_key else {"temperature": 0}
        params = {"max_new_tokens": num_tokens, "custom_params": custom} | greedy | more
        return {"input_ids": ids, "sampling_params": params, "return_logprob": True} | top

    async def post(self, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        async with self.session.post(self.url + path, json=body or {}, headers=headers) as response:
            text = await response.text()
            return response.status, json.loads(text) if text.startswith(("{", "[")) else text

    async def get(self, path: str) -> tuple[int, Any]:
        async with self.session.get(self.url + path) as response:
            text = await response.text()
            return response.status, json.loads(text) if text.startswith("{") else text

    async def generate(self, ids: list[int], num_tokens: int, key: str = "aa", position: int = 0, **more: Any) -> Any:
        status, answer = await self.post("/generate", self.body(ids, num_tokens, key, position, **more))
        assert status == 200, answer
        return answer

    async def stream(self, ids: list[int], num_tokens: int, key: str = "aa", **more: Any) -> list[dict[str, Any]]:
        """All chunks."""
        body = self.body(ids, num_tokens, key, stream=True, **more)
        async with self.session.post(self.url + "/generate", json=body) as response:
            assert response.headers["Content-Type"] == "text/event-stream"
            lines = [line async for line in response.content if line.strip()]
        assert lines.pop() == b"data: [DONE]\n"
        return [json.loads(line.removeprefix(b"data: ")) for line in lines]

    async def begin(self, *bodies: dict[str, Any]) -> list["asyncio.Task[Any]"]:
        """Start calls, and return when all are taken and each has made some tokens, none all; the engine stands still."""
        before = self.engine.counters()["sampled"]
        if self._time is not None:
            self._time.run(False)
        tasks = [asyncio.create_task(self.post("/generate", body)) for body in bodies]
        await until(lambda: self.engine.num_live() == len(bodies))
        await self.move_on(before + 20 * len(bodies))
        return tasks

    async def move_on(self, num_sampled: int) -> None:
        """Let the engine sample until its counter says so; then it stands still again."""
        engine = self.engine
        if isinstance(engine, ScriptedEngine):
            engine.release(20)
        elif self._time is not None:
            await until(lambda: engine.counters()["sampled"] >= num_sampled, self._time.fire)
        else:
            await self.post("/continue_generation")
            await until(lambda: engine.counters()["sampled"] >= num_sampled)
            await self.post("/pause_generation", {"mode": "in_place"})

    async def go_on(self) -> None:
        """Let the engine finish what it has."""
        if isinstance(self.engine, ScriptedEngine):
            self.engine.release(LONG)
        elif self._time is not None:
            self._time.run(True)
        else:
            await self.post("/continue_generation")


async def until(condition: Callable[[], bool], push: Callable[[], Any] = lambda: None) -> None:
    """Give way to the loop until the condition holds (the test's own timeout ends a wait that never does)."""
    while not condition():
        push()
        await asyncio.sleep(0)


def new_engine(
    kind: str, time: VirtualTime | None, held: bool, stream_tokens: int = 4, has_decode: bool = True, moves_kv: bool = False, **config: Any
) -> ServedEngine:
    common: dict[str, Any] = {"run_token": TOKEN, "host": "127.0.0.1", "decode": decode if has_decode else None}
    defaults = {"page_size": 8, "kv_tokens": 16384, "prefill_chunk": 64}
    engine_config = EngineConfig(**(defaults | config))
    if kind in ("embedded", "prescribed", "two_ranks"):
        if kind == "two_ranks":
            second_rank.get().make(FOLLOWER, __name__, "new_follower", engine_config, common["decode"])
        return EmbeddedEngine(
            engine_config,
            model=MODEL,
            store=MemoryStore(PARAMS),
            stream_tokens=stream_tokens,
            script=script if kind == "prescribed" else None,
            moves_kv=moves_kv,
            ranks=second_rank.ranks(0) if kind == "two_ranks" else None,
            **common,
        )
    if kind == "timed":
        assert time is not None
        return TimedEngine(
            engine_config,
            timer=time.timer,
            now=time.now,
            max_context=MODEL.max_context,
            vocab_size=VOCAB,
            stream_tokens=stream_tokens,
            moves_kv=moves_kv,
            **common,
        )
    if kind == "sglang":
        return shared_sglang.new_engine(engine_config, MODEL, MemoryStore(PARAMS), **common)
    return ScriptedEngine(script, max_context=MODEL.max_context, vocab_size=VOCAB, held=held, **common)


FOLLOWER = 0


def new_follower(config: EngineConfig, decode: Decode | None) -> EngineFollower:
    """In the second rank's process."""
    follower = EngineFollower(config, model=MODEL, ranks=second_rank.ranks(1), snapshot=MemoryStore(PARAMS).get, decode=decode)
    follower.start()
    return follower


def _end_follower(engine: ServedEngine) -> None:
    """It ends with its leader; one whose leader broke is killed."""
    if engine.failure() is not None:
        second_rank.get().discard()
        return
    second_rank.get().send("join", FOLLOWER)
    second_rank.get().hear()


@asynccontextmanager
async def rig(kind: str, *, held: bool = False, **config: Any) -> AsyncIterator[Rig]:
    time = VirtualTime() if kind == "timed" else None
    engine = new_engine(kind, time, held, **config)
    url = await engine.start()
    await engine.wake(V0)
    engine.open_admission(1)
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as session:
        try:
            yield Rig(engine, url, session, time)
        finally:
            await engine.close()
            if kind == "two_ranks":
                _end_follower(engine)


def run(kind: str, test: Callable[[Rig], Awaitable[None]], **config: Any) -> None:
    """Run an async test against a fresh engine."""

    async def main() -> None:
        async with rig(kind, **config) as serving:
            await test(serving)

    asyncio.run(main())
