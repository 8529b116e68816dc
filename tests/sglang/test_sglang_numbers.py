"""What a real SGLang on CPU computes: the numbers of transformers and of our own engine, with the very weights that were sent last.

float32 within 1e-3 (rounding alone is 1e-6), bfloat16 within 0.05 (rounding alone is 0.016); controls with a wrong position, a wrong
prompt or wrong weights must miss by five times as much, else agreement would say nothing. Our own decoder computes Qwen3 alone, so
Qwen2 is compared with transformers only.
"""

import asyncio
import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import torch

from gyre_hpc.config.engine_schema import Device, EngineConfig, SGLangConfig
from gyre_hpc.engines.embedded.engine import EmbeddedEngine
from gyre_hpc.engines.sglang.client import Client
from gyre_hpc.engines.sglang.parts import ServerLost
from gyre_hpc.engines.sglang.weight_disk import DiskSender
from gyre_hpc.engines.sglang.weight_group import GroupSender
from gyre_hpc.models.checkpoint import load_checkpoint
from gyre_hpc.models.parameters import Parameters
from gyre_hpc.models.qwen3_config import Qwen3Config
from gyre_hpc.protocol.identity import Version
from tests.fakes.memory_store import MemoryStore
from tests.fakes.sglang_here import sglang_config
from tests.sglang.models import telling_parameters, tiny_config, write_qwen2, write_qwen3
from tests.sglang.oracle import LONG_PROMPT, PROMPT, Greedy, Oracle, greedy
from tests.sglang.plain_server import plain_server

FLOAT32, BFLOAT16 = 1e-3, 0.05
PROMPTS = (PROMPT, LONG_PROMPT)
DEADLINE_S = 60.0
MAX_CONTEXT = 1024

pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What one server said, one version after the other, and the folders those are in."""

    folders: tuple[Path, ...]
    answers: tuple[list[Greedy], ...]
    refusal: str = ""

    def gaps(self, version: int, of: int | None = None, dtype: torch.dtype = torch.float32, **control: bool) -> list[float]:
        """Of the answers with one version's weights against those of version `of` (default: the same)."""
        oracle = Oracle(self.folders[version if of is None else of], dtype)
        return [oracle.gap(answer, **control) for answer in self.answers[version]]


def small(sglang: SGLangConfig) -> EngineConfig:
    return EngineConfig(page_size=8, kv_tokens=4096, max_batch=8, prefill_chunk=128, sglang=sglang)


async def answers(client: Client) -> list[Greedy]:
    return [await greedy(client, prompt) for prompt in PROMPTS]


def new_group(config: Qwen3Config, dtype: str, world: int = 1) -> GroupSender:
    # Portions far smaller than the model: five and more of them.
    return GroupSender(
        model=config, dtype=dtype, backend="gloo", host="127.0.0.1", world=world, deadline_s=DEADLINE_S, bucket_bytes=100_000
    )


def three_versions(base: Path, config: Qwen3Config) -> tuple[tuple[Path, ...], list[Parameters]]:
    folders = tuple(base / f"v{seed}" for seed in range(3))
    return folders, [write_qwen3(folder, seed=seed, config=config)[1] for seed, folder in enumerate(folders)]


async def by_group_then_disk(sglang: SGLangConfig, base: Path, config: Qwen3Config, dtype: str) -> Seen:
    """Versions 0 and 1 over a group, 2 from disk; then weights of another shape over the group."""
    folders, weights = three_versions(base, config)
    seen: list[list[Greedy]] = []
    async with plain_server(small(sglang), folders[0], device=Device.cpu, max_context=MAX_CONTEXT) as (client, _):
        group = new_group(config, dtype)
        await group.join(client)
        for step in (0, 1):
            await group.send(client, Version(0, step), weights[step], flush=True)
            seen.append(await answers(client))
        disk = DiskSender(model=config, dtype=dtype, folder=base / "disk", deadline_s=DEADLINE_S)
        await disk.join(client)
        await disk.send(client, Version(0, 2), weights[2], flush=True)
        seen.append(await answers(client))
        await group.close()
        refusal = await refused(client, config)
    return Seen(folders=folders, answers=tuple(seen), refusal=refusal)


async def refused(client: Client, config: Qwen3Config) -> str:
    """What the sender says when the server's model is narrower than its own idea of it. (Too many rows SGLang cuts off without a word.)"""
    other = dataclasses.replace(config, hidden_size=config.hidden_size // 2)
    group = new_group(other, "float32")
    await group.join(client)
    with pytest.raises(ServerLost) as lost:
        await group.send(client, Version(0, 3), telling_parameters(other, 0), flush=True)
    return str(lost.value)


@pytest.fixture(scope="module")
def sglang_module() -> SGLangConfig:
    return sglang_config()


@pytest.fixture(scope="module")
def qwen3(sglang_module: SGLangConfig, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    base = tmp_path_factory.mktemp("qwen3")
    return asyncio.run(by_group_then_disk(sglang_module, base, tiny_config(max_context=MAX_CONTEXT), "float32"))


@pytest.fixture(scope="module")
def tied(sglang_module: SGLangConfig, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    base = tmp_path_factory.mktemp("tied")
    config = dataclasses.replace(tiny_config(max_context=MAX_CONTEXT), tie_word_embeddings=True)
    return asyncio.run(by_group_then_disk(dataclasses.replace(sglang_module, dtype="bfloat16"), base, config, "bfloat16"))


@pytest.fixture(scope="module")
def qwen2(sglang_module: SGLangConfig, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    folder = tmp_path_factory.mktemp("qwen2")
    write_qwen2(folder, config=tiny_config(max_context=MAX_CONTEXT))

    async def seen() -> Seen:
        async with plain_server(small(sglang_module), folder, device=Device.cpu, max_context=MAX_CONTEXT) as (client, _):
            body = {"model_path": str(folder), "load_format": "safetensors", "weight_version": "0.0", "flush_cache": True}
            assert (await client.ask("/update_weights_from_disk", body, DEADLINE_S))["success"]
            return Seen(folders=(folder,), answers=(await answers(client),))

    return asyncio.run(seen())


@pytest.mark.parametrize("version", [0, 1, 2])
def test_qwen3_gives_the_numbers_of_transformers(qwen3: Seen, version: int) -> None:
    assert max(qwen3.gaps(version)) < FLOAT32
    assert min(qwen3.gaps(version, doubled=True)) > 5 * FLOAT32
    assert qwen3.gaps(version, changed=True)[0] > 5 * FLOAT32


@pytest.mark.parametrize("version", [0, 1, 2])
def test_qwen3_gives_the_tokens_and_numbers_of_the_embedded_engine(qwen3: Seen, version: int) -> None:
    for theirs, ours in zip(qwen3.answers[version], asyncio.run(of_embedded(qwen3.folders[version])), strict=True):
        assert theirs.ids == ours.ids
        assert max(abs(a - b) for a, b in zip(theirs.logprobs, ours.logprobs, strict=True)) < FLOAT32


@pytest.mark.rare
def test_qwen2_gives_the_numbers_of_transformers(qwen2: Seen) -> None:
    assert max(qwen2.gaps(0)) < FLOAT32
    assert min(qwen2.gaps(0, doubled=True)) > 5 * FLOAT32


@pytest.mark.rare
@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_tied_model_in_bfloat16_stays_near_transformers(tied: Seen, version: int) -> None:
    assert max(tied.gaps(version, dtype=torch.bfloat16)) < BFLOAT16
    assert min(tied.gaps(version, dtype=torch.bfloat16, doubled=True)) > 5 * BFLOAT16


@pytest.mark.parametrize(("version", "old"), [(1, 0), (2, 1)], ids=["group", "disk"])
def test_after_an_update_nothing_of_the_old_weights_is_left(qwen3: Seen, version: int, old: int) -> None:
    assert min(qwen3.gaps(version, of=old)) > 5 * FLOAT32


@pytest.mark.rare
@pytest.mark.parametrize(("version", "old"), [(1, 0), (2, 1)], ids=["group", "disk"])
def test_after_an_update_of_a_tied_model_nothing_of_the_old_weights_is_left(tied: Seen, version: int, old: int) -> None:
    assert min(tied.gaps(version, of=old, dtype=torch.bfloat16)) > 5 * BFLOAT16


def test_two_ranks_hold_the_model_together(sglang_module: SGLangConfig, tmp_path: Path) -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("two ranks on a CPU are bound to a core each")
    sglang = dataclasses.replace(sglang_module, environ={"SGLANG_CPU_OMP_THREADS_BIND": f"{cores[0]}|{cores[1]}"})
    config = tiny_config(max_context=MAX_CONTEXT)
    _, weights = write_qwen3(tmp_path, config=config)

    async def seen() -> Seen:
        async with plain_server(small(sglang), tmp_path, device=Device.cpu, max_context=MAX_CONTEXT, world=2) as (client, _):
            group = new_group(config, "float32", world=2)
            await group.join(client)
            await group.send(client, Version(0, 0), weights, flush=True)
            return Seen(folders=(tmp_path,), answers=(await answers(client),))

    together = asyncio.run(seen())
    assert max(together.gaps(0)) < FLOAT32
    assert min(together.gaps(0, doubled=True)) > 5 * FLOAT32


@pytest.mark.parametrize("model", ["qwen3", pytest.param("tied", marks=pytest.mark.rare)])
def test_every_answer_is_labelled_with_the_version_sent_last(request: pytest.FixtureRequest, model: str) -> None:
    seen = request.getfixturevalue(model)
    assert [[answer.label for answer in said] for said in seen.answers] == [["0.0"] * 2, ["0.1"] * 2, ["0.2"] * 2]


def test_a_server_that_cannot_take_the_weights_in_is_lost_with_its_reason(qwen3: Seen) -> None:
    assert "weights 0.3 did not arrive whole" in qwen3.refusal
    assert "Failed to update parameter online" in qwen3.refusal


async def of_embedded(folder: Path) -> list[Greedy]:
    """Greedy answers of our own engine, on its HTTP surface."""
    config, params = load_checkpoint(folder)
    engine = EmbeddedEngine(
        small(SGLangConfig()),
        model=config,
        store=MemoryStore({Version(): params}),
        run_token="run-token",
        host="127.0.0.1",
    )
    url = await engine.start()
    try:
        await engine.wake(Version())
        engine.open_admission(1)
        async with aiohttp.ClientSession(headers={"Authorization": "Bearer run-token"}) as session:
            return [await asked(session, url, prompt) for prompt in PROMPTS]
    finally:
        await engine.close()


async def asked(session: aiohttp.ClientSession, url: str, prompt: list[int]) -> Greedy:
    params: dict[str, Any] = {"temperature": 0, "max_new_tokens": 16, "ignore_eos": True, "custom_params": {"key": "aa", "position": 0}}
    async with session.post(f"{url}/generate", json={"input_ids": prompt, "sampling_params": params, "return_logprob": True}) as response:
        assert response.status == 200, await response.text()
        answer = await response.json()
    told = answer["meta_info"]["output_token_logprobs"]
    return Greedy(prompt=prompt, ids=answer["output_ids"], logprobs=[one[0] for one in told])
