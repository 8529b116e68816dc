"""Hugging Face folders: config.json + safetensors, as `transformers` reads and writes them.

Files are written aside and renamed; the folder is complete once config.json stands in it.
"""

import json
import os
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from gyre_hpc.errors import UserError
from gyre_hpc.models.parameters import Parameters, parameter_shapes
from gyre_hpc.models.qwen3_config import Qwen3Config, read_config, to_hf

_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"


def save_checkpoint(folder: Path, config: Qwen3Config, params: Parameters, dtype: str = "") -> None:
    """Write config.json and model.safetensors. dtype: torch's name of one; empty: as the tensors have it. Raises UserError on wrong
    names or shapes."""
    _check(params, config, "parameters")
    folder.mkdir(parents=True, exist_ok=True)
    kind = getattr(torch, dtype) if dtype else None
    tensors = {name: params[name].detach().to("cpu", kind).contiguous() for name in parameter_shapes(config)}
    aside = folder / f".{_WEIGHTS}.{os.getpid()}"
    save_file(tensors, aside, metadata={"format": "pt"})
    _settle(aside, folder / _WEIGHTS)
    aside = folder / f".config.json.{os.getpid()}"
    aside.write_text(json.dumps(to_hf(config), indent=2) + "\n")
    _settle(aside, folder / "config.json")


def load_checkpoint(folder: Path, dtype: torch.dtype = torch.float32) -> tuple[Qwen3Config, Parameters]:
    """Read a folder (one safetensors file or shards with an index). Raises UserError naming what is wrong with it."""
    config = read_config(folder)
    params: Parameters = {}
    for path in _weight_files(folder):
        params |= load_file(path)
    if config.tie_word_embeddings:
        params.pop("lm_head.weight", None)
    _check(params, config, str(folder))
    return config, {name: params[name].to(dtype) for name in parameter_shapes(config)}


def _weight_files(folder: Path) -> list[Path]:
    names = {_WEIGHTS}
    if (folder / _INDEX).exists():
        names = set(json.loads((folder / _INDEX).read_bytes())["weight_map"].values())
    missing = sorted(name for name in names if not (folder / name).exists())
    if missing:
        raise UserError("model.path", str(folder), f"it lacks {', '.join(missing)}; copy the whole Hugging Face folder")
    return [folder / name for name in sorted(names)]


def _check(params: Parameters, config: Qwen3Config, source: str) -> None:
    shapes = parameter_shapes(config)
    for name, shape in shapes.items():
        if name not in params:
            raise UserError(source, name, "this tensor is missing; config.json and weights must belong together")
        if tuple(params[name].shape) != shape:
            raise UserError(source, f"{name} {tuple(params[name].shape)}", f"config.json asks for shape {shape}")
    extra = sorted(set(params) - set(shapes))
    if extra:
        raise UserError(source, extra[0], "this tensor is not part of a Qwen3 decoder of this config.json")


def _settle(aside: Path, final: Path) -> None:
    with open(aside, "rb") as file:
        os.fsync(file.fileno())
    os.replace(aside, final)
