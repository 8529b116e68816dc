"""Action KeepSatellites: `gyre satellite --keep N` in a process of its own; whoever submits jobs is never imported here."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from gyre_hpc.machines.batch.satellites import KeepSatellites, SatelliteJobs
from gyre_hpc.shell.lifetime import PARENT_PID

_DEADLINE_S = 120.0
"""SLURM's own commands are asked with shorter ones."""


class SlurmRefusal(Exception):
    """What the command said."""


class SatelliteKeeper:
    """For one run."""

    def __init__(self, run: Path) -> None:
        self._argv = [sys.executable, "-m", "gyre_hpc.cli", "satellite", "--run", str(run), "--keep"]

    async def keep(self, key: str, action: KeepSatellites, progress: Callable[[Any], None]) -> SatelliteJobs:
        """Raises SlurmRefusal, subprocess.TimeoutExpired, OSError."""
        done = await asyncio.to_thread(
            subprocess.run, [*self._argv, str(action.wanted)], env=surroundings(os.environ), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=_DEADLINE_S, check=False,
        )  # fmt: skip
        if done.returncode:
            raise SlurmRefusal(done.stderr.strip() or f"gyre satellite ended with {done.returncode}")
        return msgspec.convert(msgspec.json.decode(done.stdout), SatelliteJobs, strict=False)


def surroundings(environ: "os._Environ[str] | dict[str, str]") -> dict[str, str]:
    """Nothing of our own job: sbatch would take it for what the new one asks for."""
    ours = ("SLURM_", "SBATCH_", "SRUN_", PARENT_PID)
    return {name: value for name, value in environ.items() if name == "SLURM_CONF" or not name.startswith(ours)}
