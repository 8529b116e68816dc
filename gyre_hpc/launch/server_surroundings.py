"""What engine=sglang needs of this machine: something that computes, GPUs for all cells, flags it will take, its environment, short paths."""

import os
import sys
from pathlib import Path

from gyre_hpc.config.engine_schema import Device, SGLangConfig, SGLangKV
from gyre_hpc.config.place import above_scratch, cache_folder
from gyre_hpc.config.schema import ClusterKind, Config
from gyre_hpc.engines.sglang.environment import VERSION, choose_device, find, version_in
from gyre_hpc.engines.sglang.flags import create_launch
from gyre_hpc.engines.sglang.parts import LONGEST_FOLDER
from gyre_hpc.engines.sglang.site import Part, Site
from gyre_hpc.errors import UserError
from gyre_hpc.supervisor.devices import devices_here
from gyre_hpc.telling import tell

_BELOW_SCRATCH = len("/gyre--") + 10
"""Bytes of the run's own folder beside the user's number: an inode in hexadecimal."""


def check_server(config: Config) -> None:
    """Raises UserError for the first thing that is missing here."""
    sglang = config.engine.sglang
    _check_devices(config)
    device = choose_device(sglang.device)
    if sglang.launcher and not Path(sglang.launcher).expanduser().is_file():
        raise UserError("engine.sglang.launcher", sglang.launcher, "is no file; name a Python program that starts SGLang, or leave it out")
    # Flags that cannot be are told now, not by every cell; and before somebody installs gigabytes for them.
    cache = cache_folder(config)
    part = Part.prefill if sglang.kv is SGLangKV.pd else Part.whole
    create_launch(
        config.engine,
        Site(folder=Path("server"), cache=cache, world=config.cluster.ranks_per_cell, part=part),
        max_context=config.model.max_context,
        model_folder=Path("model"),
        device=device,
        python=Path("python"),
        program=(),
        inherited={},
    )
    python = find(sglang, cache, device)
    if sglang.environment:
        _check_version(sglang, python)
    _check_scratch(config)


def _check_version(sglang: SGLangConfig, python: Path) -> None:
    """Of an environment of somebody's own; a launcher may bring an SGLang along that is not seen here."""
    version = version_in(python)
    if not version and not sglang.launcher:
        raise UserError(
            "engine.sglang.environment",
            sglang.environment,
            f"there is no sglang in it; install sglang=={VERSION} there, or leave the key out and run: gyre engine install sglang",
        )
    if version not in ("", VERSION):
        told = f"note: engine.sglang.environment={sglang.environment} holds sglang {version}; tried was {VERSION} alone"
        tell(told, sys.stderr)


def _check_devices(config: Config) -> None:
    cells, ranks = config.cluster.cells, config.cluster.ranks_per_cell
    device, devices = choose_device(config.engine.sglang.device), devices_here(os.environ)
    if device is not Device.cuda:
        _check_computes_on_cpu(config.engine.sglang)
        if config.engine.deterministic:
            raise UserError(
                "engine.deterministic", True, "SGLang has this mode on GPUs alone, and there is none here; false with engine=sglang"
            )
        return
    if not devices:
        raise UserError("engine.sglang.device", "cuda", "no NVIDIA GPU is to be seen here; use cpu, or look at CUDA_VISIBLE_DEVICES")
    if len(devices) < cells * ranks:
        raise UserError(
            "cluster.cells",
            cells,
            f"{cells} cells of {ranks} ranks need {cells * ranks} GPUs, {len(devices)} are to be seen here; fewer cells, or, to let small "
            f"models share a GPU, name it several times: CUDA_VISIBLE_DEVICES={','.join([devices[0]] * min(cells * ranks, 4))}",
        )


def _check_computes_on_cpu(sglang: SGLangConfig) -> None:
    """Another build of SGLang does, or a launcher that brings what is missing; the environment that we make without one does not."""
    if sglang.environment or sglang.launcher:
        return
    seen = "no NVIDIA GPU is to be seen here, and " if sglang.device is Device.auto else ""
    raise UserError(
        "engine.sglang.device",
        sglang.device.value,
        f"{seen}SGLang as released has no kernels for CPUs; engine=embedded, or cuda where there is an NVIDIA GPU (a build of your own for "
        "CPUs: name it in engine.sglang.environment; for tests: engine.sglang.launcher=tests/sglang/launch_without_gpu.py)",
    )


def _check_scratch(config: Config) -> None:
    """About: the run has no folder yet. The server looks again."""
    above = os.fsencode(above_scratch(config))
    node = f"-{config.cluster.slurm.nodes - 1}" if config.cluster.kind is ClusterKind.slurm else ""
    longest = LONGEST_FOLDER - _BELOW_SCRATCH - len(str(os.getuid())) - len(f"{node}/1-cell-{config.cluster.cells - 1}")
    if len(above) > longest:
        remedy = f"sockets of SGLang's servers lie below it: at most {longest} bytes with engine=sglang, e.g. /tmp"
        raise UserError("paths.scratch", os.fsdecode(above), remedy)
