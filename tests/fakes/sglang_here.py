"""A real SGLang on this machine: its environment for CPUs, in the cache or where $GYRE_SGLANG says; the one optional part named "sglang"."""

import os
from pathlib import Path
from typing import Any

from gyre_hpc.config.engine_schema import Device, SGLangConfig
from gyre_hpc.config.place import cache_folder
from gyre_hpc.config.schema import Config
from gyre_hpc.engines.sglang.environment import find, folder_of
from gyre_hpc.errors import UserError
from tests.fakes.required import need

LAUNCHER = Path(__file__).resolve().parents[1] / "sglang" / "launch_without_gpu.py"


def environment_folder() -> Path:
    """Where it is looked for."""
    named = os.environ.get("GYRE_SGLANG")
    return Path(named) if named else folder_of(cache_folder(Config()), Device.cpu)


def sglang_problem() -> str:
    """Why it cannot be used, and the command that mends it; empty: it is there."""
    named = os.environ.get("GYRE_SGLANG", "")
    try:
        find(SGLangConfig(environment=named), cache_folder(Config()), Device.cpu)
    except UserError as error:
        return error.remedy
    return ""


def sglang_config(**more: Any) -> SGLangConfig:
    """What an engine with a real server on CPU is told; skips the test (or fails it, see `need`) when there is no environment."""
    need("sglang", sglang_problem())
    return SGLangConfig(environment=str(environment_folder()), launcher=str(LAUNCHER), device=Device.cpu, **more)
