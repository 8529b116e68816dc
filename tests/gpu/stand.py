"""One real SGLang on a GPU for all tests of this folder, and what they know of its model."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from gyre_hpc.engines.sglang.client import Client
from gyre_hpc.engines.sglang.memory import ServerMemory
from gyre_hpc.engines.sglang.server import Server
from gyre_hpc.models import qwen3
from gyre_hpc.models.parameters import Parameters
from gyre_hpc.models.qwen3_config import Qwen3Config
from gyre_hpc.protocol.identity import Version
from tests.sglang.oracle import Greedy

MODEL = Qwen3Config(
    vocab_size=32768,
    hidden_size=2048,
    num_layers=4,
    num_heads=16,
    num_kv_heads=8,
    head_dim=128,
    intermediate_size=6144,
    max_context=4096,
    init_std=0.1,
)
"""340 million parameters: enough to time a transfer, few enough for the CPU to compute it beside."""
V0, V1, V2 = Version(0, 0), Version(0, 1), Version(0, 2)
KV_TOKENS = 131072


@dataclass(kw_only=True)
class Stand:
    """runner: its loop is the one that server and client live in."""

    runner: asyncio.Runner
    client: Client
    server: Server
    memory: ServerMemory
    weights: dict[Version, Parameters]
    scratch: Path
    figures: dict[str, Any] = field(default_factory=dict)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    def used(self) -> int:
        """Bytes of the device that are not free."""
        return int(self.run(self.memory.measure())[0].used)

    def gap(self, answer: Greedy, version: Version, dtype: torch.dtype = torch.float32, *, changed: bool = False) -> tuple[float, float]:
        """Mean and largest distance of an answer's log-probs from those of the trainer's forward with a version's weights."""
        ids = [*answer.prompt, *answer.ids]
        if changed:
            ids[len(answer.prompt) // 2] ^= 1
        params = {name: tensor.to(dtype) for name, tensor in self.weights[version].items()}
        rows = torch.arange(len(answer.prompt), len(ids))
        with torch.no_grad():
            ours = qwen3.target_logprobs(params, MODEL, torch.tensor(ids), [len(ids)], rows).float()
        off = (ours - torch.tensor(answer.logprobs)).abs()
        return float(off.mean()), float(off.max())
