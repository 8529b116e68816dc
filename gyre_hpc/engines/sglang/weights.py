"""Weights into a server: which of the two routes, and over what.

weight_group.py, weight_disk.py   the routes
weight_buckets.py                 portions of bounded size
weight_checks.py                  whole or not; taken or not
"""

import os
from collections.abc import Mapping
from pathlib import Path

from gyre_hpc.config.engine_schema import Device, SGLangConfig, WeightRoute
from gyre_hpc.engines.sglang.parts import WeightSender
from gyre_hpc.engines.sglang.weight_disk import DiskSender
from gyre_hpc.engines.sglang.weight_group import GroupSender
from gyre_hpc.models.qwen3_config import Qwen3Config


def new_sender(
    config: SGLangConfig, *, model: Qwen3Config, device: Device, dtype: str, host: str, world: int, folder: Path
) -> WeightSender:
    """device, dtype: the server's, never `auto`. host: where the server's ranks reach this process. world: how many they are. folder: for
    weights by disk alone; every node of the server sees it. Raises UserError."""
    if config.weights is WeightRoute.disk:
        return DiskSender(model=model, dtype=dtype, folder=folder, deadline_s=config.update_deadline_s)
    backend = group_backend(device, config.environ)
    if backend == "nccl":
        # Both ends of a communicator must be told the same; NCCL reads its environment when the first one is made.
        os.environ.update({name: value for name, value in config.environ.items() if name.startswith("NCCL_")})
    return GroupSender(
        model=model,
        dtype=dtype,
        backend=backend,
        device="cuda:0",
        host=host,
        world=world,
        deadline_s=config.update_deadline_s,
    )


def group_backend(device: Device, environ: Mapping[str, str]) -> str:
    """nccl or gloo. The cell's leader and the first rank of its server share a GPU, which NCCL refuses unless its environment says
    otherwise; gloo passes through host memory and always goes."""
    return "nccl" if device is Device.cuda and environ.get("NCCL_MULTI_RANK_GPU_ENABLE") == "1" else "gloo"
