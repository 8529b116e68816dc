"""Senders of both kinds for a tiny model, and what it takes to send with one."""

from pathlib import Path
from typing import Any

import torch

from gyre_hpc.engines.sglang.parts import WeightSender
from gyre_hpc.engines.sglang.weight_disk import DiskSender
from gyre_hpc.engines.sglang.weight_group import GroupSender
from gyre_hpc.models.parameters import Parameters, random_parameters
from gyre_hpc.models.qwen3_config import Qwen3Config
from gyre_hpc.protocol.identity import Version

UPDATE = "/update_weights_from_distributed"
MODEL = Qwen3Config(
    vocab_size=40, hidden_size=16, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=4, intermediate_size=24, max_context=64
)
TIED = Qwen3Config(
    vocab_size=40,
    hidden_size=16,
    num_layers=1,
    num_heads=4,
    num_kv_heads=2,
    head_dim=4,
    intermediate_size=24,
    max_context=64,
    tie_word_embeddings=True,
)
NEXT = Version(0, 1)


def weights(seed: int = 1, model: Qwen3Config = MODEL) -> Parameters:
    torch.set_num_threads(1)
    return random_parameters(model, seed)


def group(
    *, model: Qwen3Config = MODEL, dtype: str = "float32", world: int = 1, deadline_s: float = 30.0, bucket_bytes: int = 3000
) -> GroupSender:
    return GroupSender(
        model=model, dtype=dtype, backend="gloo", host="127.0.0.1", world=world, deadline_s=deadline_s, bucket_bytes=bucket_bytes
    )


def of_kind(kind: str, folder: Path, *, model: Qwen3Config = MODEL, dtype: str = "float32", deadline_s: float = 30.0) -> WeightSender:
    if kind == "disk":
        return DiskSender(model=model, dtype=dtype, folder=folder, deadline_s=deadline_s)
    return group(model=model, dtype=dtype, deadline_s=deadline_s)


async def delivered(sender: WeightSender, server: Any, tensors: Parameters, *, flush: bool = True, version: Version = NEXT) -> None:
    await sender.join(server)
    try:
        await sender.send(server, version, tensors, flush=flush)
    finally:
        await sender.close()
