"""Weights by way of a Hugging Face folder that the server reads: slower than a group, but it asks nothing of the network.

The newest folder stays, since the server may look at its model's folder again; older ones go once it has read the next, or when the
next process of the cell joins: what the server has then is sent anew.
"""

import asyncio
import itertools
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gyre_hpc.engines.sglang.parts import Refused, ServerLost, Upstream
from gyre_hpc.engines.sglang.weight_checks import check_success, check_whole, item_bytes
from gyre_hpc.models.checkpoint import save_checkpoint
from gyre_hpc.models.parameters import parameter_shapes
from gyre_hpc.models.qwen3_config import Qwen3Config
from gyre_hpc.protocol.identity import Version
from gyre_hpc.transport.breakable import Breakable
from gyre_hpc.transport.c10d_pieces import Deadline

_PATH = "/update_weights_from_disk"


class DiskSender:
    """WeightSender through `folder`, which is this sender's alone and which every node of the server sees under this name. In host memory
    the weights lie twice while they are written, unless they have the server's type already."""

    def __init__(self, *, model: Qwen3Config, dtype: str, folder: Path, deadline_s: float) -> None:
        item_bytes(dtype)
        self._model, self._dtype, self._folder, self._deadline_s = model, dtype, folder, deadline_s
        self._numbers = itertools.count(1)

    async def join(self, upstream: Upstream) -> None:
        """Nothing to meet. What a process before this one left behind goes."""
        await asyncio.to_thread(self._remove_all_but, None)

    async def send(self, upstream: Upstream, version: Version, tensors: Mapping[str, Any], *, flush: bool) -> None:
        """See WeightSender. Raises ValueError on tensors that are not the model's, TransferFailed when they cannot be written: then the
        server knows nothing of it and has the weights it had."""
        check_whole(tensors, parameter_shapes(self._model))
        deadline = Deadline(self._deadline_s)
        # A name of its own for every try: one that was given up may still be writing.
        folder = self._folder / f"{version}-{next(self._numbers)}"
        writing = Breakable(lambda call: save_checkpoint(folder, self._model, dict(tensors), self._dtype), f"writing weights to {folder}")
        await asyncio.to_thread(writing.run, self._deadline_s)
        body = {"model_path": str(folder), "load_format": "safetensors", "weight_version": str(version), "flush_cache": flush}
        left_s = deadline.left().total_seconds()
        try:
            check_success(_PATH, await upstream.ask(_PATH, body, left_s))
        except (Refused, ServerLost) as error:
            raise ServerLost(f"weights {version} in {folder} were not taken: {error}") from error
        await asyncio.to_thread(self._remove_all_but, folder)

    async def close(self) -> None:
        """The server may outlive this process and keeps its folder."""

    def _remove_all_but(self, kept: Path | None) -> None:
        if self._folder.is_dir():
            for entry in self._folder.iterdir():
                if entry != kept:
                    shutil.rmtree(entry, ignore_errors=True)
