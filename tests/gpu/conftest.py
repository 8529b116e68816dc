"""Tests that only an NVIDIA GPU can answer: skipped with the reason where there is none (failed with GYRE_REQUIRE=gpu).

What they measured is printed at the very end as one line of JSON.
"""

import asyncio
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from gyre_hpc.config.engine_schema import Device, EngineConfig, SGLangConfig
from gyre_hpc.config.place import cache_folder
from gyre_hpc.config.schema import Config
from gyre_hpc.engines.sglang.environment import find, sees_gpu
from gyre_hpc.engines.sglang.memory import ServerMemory
from gyre_hpc.errors import UserError
from gyre_hpc.models.checkpoint import save_checkpoint
from tests.gpu.stand import KV_TOKENS, MODEL, V0, V1, V2, Stand
from tests.sglang.models import telling_parameters
from tests.sglang.plain_server import plain_server

_FIGURES = pytest.StashKey[dict[str, Any]]()


def problem() -> str:
    """Why nothing here can run; empty: it can."""
    if not sees_gpu():
        return "no NVIDIA GPU is to be seen"
    try:
        find(SGLangConfig(), cache_folder(Config()), Device.cuda)
    except UserError as error:
        return error.remedy
    return ""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_FIGURES] = {}


def pytest_unconfigure(config: pytest.Config) -> None:
    figures = config.stash.get(_FIGURES, {})
    if figures and any("gpu" in asked for asked in config.args):
        print(json.dumps(figures))


@pytest.fixture(scope="session")
def stand(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """A server in bfloat16 with nonsense for weights."""
    figures = request.config.stash[_FIGURES]
    if why := problem():
        figures["skipped"] = why
        if "gpu" in os.environ.get("GYRE_REQUIRE", "").split(","):
            pytest.fail(f"a GPU is required here but missing: {why}")
        pytest.skip(f"gpu: {why}")
    torch.set_num_threads(os.cpu_count() or 1)
    scratch = tmp_path_factory.mktemp("gpu")
    weights = {version: telling_parameters(MODEL, seed) for seed, version in enumerate((V0, V1, V2))}
    save_checkpoint(scratch / "model", MODEL, weights[V0], "bfloat16")
    # Without the variable NCCL refuses this process and the server on one GPU.
    sglang = SGLangConfig(device=Device.cuda, dtype="bfloat16", start_deadline_s=240.0, environ={"NCCL_MULTI_RANK_GPU_ENABLE": "1"})
    config = EngineConfig(kv_tokens=KV_TOKENS, max_batch=16, sglang=sglang)
    figures["gpu"] = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "unknown to this torch, which has no CUDA"
    with asyncio.Runner() as runner:
        serving = plain_server(config, scratch / "model", device=Device.cuda, max_context=MODEL.max_context)
        client, server = runner.run(serving.__aenter__())
        try:
            memory = ServerMemory(server, Device.cuda, rank=0, num_local=1)
            yield Stand(runner=runner, client=client, server=server, memory=memory, weights=weights, scratch=scratch, figures=figures)
        finally:
            runner.run(serving.__aexit__(None, None, None))
