"""Two real SGLang servers on CPU as a pair: one computes prompts, KV goes over Mooncake's TCP, the other one decodes.

Both are engines as build.py makes them, with the tiny model of the engines' contract suite.
"""

import os
import re
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gyre_hpc.config.engine_schema import EngineConfig, SGLangKV
from gyre_hpc.engines.sglang import build
from gyre_hpc.engines.sglang.client import Client
from gyre_hpc.engines.sglang.engine import SGLangEngine
from gyre_hpc.engines.sglang.environment import python_of
from gyre_hpc.engines.sglang.parts import Address
from gyre_hpc.engines.sglang.prefill import Peer
from gyre_hpc.engines.sglang.site import Part, Site
from gyre_hpc.ports import listen
from tests.fakes.engine_rig import MODEL, PARAMS, TOKEN, V0
from tests.fakes.memory_store import MemoryStore
from tests.fakes.required import need
from tests.fakes.sglang_here import sglang_config

HOST = "127.0.0.1"


@dataclass(kw_only=True)
class Side:
    """One of the two."""

    engine: SGLangEngine
    url: str
    """Of the engine's surface."""
    address: Address
    """Of its server."""
    client: Client
    """Another one than the engine's."""

    def pids(self) -> tuple[int, ...]:
        """Of the server's processes: the one with its HTTP surface first."""
        return self.engine.pids()[1:]


@dataclass(kw_only=True)
class Pair:
    prefill: Side
    decode: Side
    session: aiohttp.ClientSession

    async def ask(self, prompt: list[int], num_tokens: int, rid: str = "r") -> tuple[int, Any]:
        """Greedily, of the one that decodes: (HTTP status, answer)."""
        params = {"temperature": 0, "max_new_tokens": num_tokens, "ignore_eos": True, "custom_params": {"key": "aa", "position": 0}}
        body = {"input_ids": prompt, "rid": rid, "sampling_params": params, "return_logprob": True}
        async with self.session.post(self.decode.url + "/generate", json=body) as response:
            return response.status, await response.json()

    async def abort(self, rid: str) -> None:
        async with self.session.post(self.decode.url + "/abort_request", json={"rid": rid}) as response:
            assert response.status == 200

    def is_prefilling(self) -> bool:
        return bool(self.prefill.engine.facts()["num_guests"])

    async def moved_mib(self) -> float:
        """KV that the prefilling server has sent since its start."""
        headers = {"Authorization": f"Bearer {self.prefill.address.key}"}
        async with self.session.get(self.prefill.address.url + "/metrics", headers=headers) as response:
            text = await response.text()
        assert response.status == 200, text[:500]
        return sum(float(value) for value in re.findall(r"^sglang:kv_transfer_total_mb_sum\{.*\} (\S+)$", text, re.MULTILINE))


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    """Both awake with version 0.0, the decoding one open for calls. They start one after the other."""
    with tempfile.TemporaryDirectory(prefix="gp-", dir="/tmp") as folder:
        async with AsyncExitStack() as stack:
            port = _free_port()
            prefill = await _side(stack, Path(folder), part=Part.prefill, bootstrap_port=port)
            peer = Peer(host=HOST, bootstrap_port=port, prompt=prefill.engine.prompt)
            decode = await _side(stack, Path(folder), part=Part.decode, prefill=peer)
            for side in (prefill, decode):
                await side.engine.wake(V0)
            decode.engine.open_admission(1)
            session = await stack.enter_async_context(aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}))
            yield Pair(prefill=prefill, decode=decode, session=session)


async def _side(stack: AsyncExitStack, folder: Path, *, part: Part, bootstrap_port: int = 0, prefill: Peer | None = None) -> Side:
    seen: list[Address] = []

    def connect(address: Address) -> Client:
        seen.append(address)
        return Client(address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "Client", connect)
        engine = build.create_sglang_engine(
            _config(),
            Site(
                folder=folder / part.value[0],
                cache=Path("/nonexistent"),
                part=part,
                bootstrap_port=bootstrap_port,
                root_pid=os.getpid(),
            ),
            model=MODEL,
            store=MemoryStore(PARAMS),
            run_token=TOKEN,
            port=0,
            rank=0,
            decode=None,
            prefill=prefill,
        )
        stack.push_async_callback(engine.close)
        url = await engine.start()
    client = Client(seen[0])
    stack.push_async_callback(client.close)
    return Side(engine=engine, url=url, address=seen[0], client=client)


def need_mooncake() -> None:
    """Skips the test, or fails it (see `need`), where SGLang's environment cannot load it."""
    python = python_of(Path(sglang_config().environment))
    done = subprocess.run([python, "-c", "import mooncake.engine"], capture_output=True, text=True, check=False)
    need("sglang", "" if done.returncode == 0 else f"libibverbs1 libnuma1 libcurl4 are for mooncake: {done.stderr[-200:]}")


def _config() -> EngineConfig:
    sglang = sglang_config(kv=SGLangKV.pd, flags={"enable-metrics": True, "sleep-on-idle": True})
    return EngineConfig(page_size=8, kv_tokens=16384, max_batch=8, prefill_chunk=64, sglang=sglang)


def _free_port() -> int:
    with listen(HOST) as taken:
        return int(taken.getsockname()[1])
