"""Does the job's signal come early enough for the last checkpoint? Asked at the door of a run that goes on: it has measured its saves."""

import math

import msgspec

from gyre_hpc.config.deadlines import ENDING_S
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.errors import UserError
from gyre_hpc.observability.events import Event

_CORE = "cell-0"
_SLOWER = 2.0
"""A save while everything ends may take so many times the slowest one so far."""


def check_last_save(config: Config) -> None:
    """Raises UserError where a stop in order could not wait for a save as slow as those that the run has seen."""
    if not config.resume:
        return
    slowest_s = slowest_save_s(RunFolder(config.resume))
    needed_s = math.ceil(_SLOWER * slowest_s)
    if not slowest_s or not config.checkpoint.stop_s:
        return
    took = f"a checkpoint of this run took up to {slowest_s:.1f} s"
    if config.checkpoint.stop_s < needed_s:
        raise UserError("checkpoint.stop_s", config.checkpoint.stop_s, f"{took}: make it at least {needed_s}, or 0 to wait for none")
    if config.cluster.slurm.signal_s < needed_s + ENDING_S:
        remedy = (
            f"{took}, and ending takes {ENDING_S:g} s more: make it at least {math.ceil(needed_s + ENDING_S)}, or set checkpoint.stop_s=0"
        )
        raise UserError("cluster.slurm.signal_s", config.cluster.slurm.signal_s, remedy)


def slowest_save_s(folder: RunFolder) -> float:
    """Of all attempts; 0: none was made, or none was measured."""
    lines = (line for path in folder.events_folder.glob(f"{_CORE}-*.jsonl") for line in path.read_bytes().splitlines())
    return max((_seconds(line) for line in lines if b'"saved"' in line), default=0.0)


def _seconds(line: bytes) -> float:
    try:
        event = msgspec.json.decode(line, type=Event)
    except msgspec.DecodeError:  # torn by a kill
        return 0.0
    return float(event.fields.get("seconds", 0.0)) if event.kind == "checkpoint" else 0.0
