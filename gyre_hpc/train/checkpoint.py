"""Weights, optimizer and state of the core as a checkpoint folder that is also a Hugging Face folder."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from gyre_hpc.models.checkpoint import load_checkpoint
from gyre_hpc.models.qwen3_config import Qwen3Config, to_hf
from gyre_hpc.protocol.identity import Version
from gyre_hpc.train import checkpoint_folder

_WEIGHTS = "model.safetensors"
_OPTIMIZER = "optimizer.safetensors"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Saved:
    """What a checkpoint held."""

    model: Qwen3Config
    weights: dict[str, torch.Tensor]
    optimizer: dict[str, torch.Tensor]
    state: dict[str, Any]


def save(
    folder: Path,
    version: Version,
    model: Qwen3Config,
    weights: dict[str, torch.Tensor],
    optimizer: dict[str, torch.Tensor],
    state: dict[str, Any],
) -> None:
    """Write all of it; the marker also holds state["manifest_hash"], if there is one. Raises StorageFull."""
    files: dict[str, Callable[[Path], None]] = {
        _WEIGHTS: lambda path: save_file(_contiguous(weights), path, metadata={"format": "pt"}),
        "config.json": lambda path: _put_json(path, to_hf(model)),
        _OPTIMIZER: lambda path: save_file(_contiguous(optimizer), path),
        checkpoint_folder.STATE: lambda path: _put_json(path, state),
    }
    checkpoint_folder.write(folder, version, files, str(state.get("manifest_hash", "")))


def load(folder: Path) -> Saved:
    """Raises FileNotFoundError (no marker) or ValueError (a file is missing or damaged)."""
    checkpoint_folder.check(folder)
    model, weights = load_checkpoint(folder)
    return Saved(
        model=model,
        weights=weights,
        optimizer=load_file(folder / _OPTIMIZER),
        state=checkpoint_folder.read_state(folder),
    )


def _contiguous(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """safetensors refuses tensors that share one buffer."""
    return {name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}


def _put_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n")
