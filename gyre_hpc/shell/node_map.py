"""The map of a run's nodes, and where its first supervisor listens, as processes read them from the run folder."""

import socket
from pathlib import Path

import msgspec

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.errors import UserError
from gyre_hpc.protocol.node_map import NodeMap, RunStart, local_map


def read_map(config: Config, folder: RunFolder, attempt: int) -> NodeMap:
    """attempts/<n>/nodes.json; without it everything is on this machine. Raises OSError, UserError."""
    try:
        data = folder.node_map(attempt).read_bytes()
    except FileNotFoundError:
        return local_map(config.cluster.cells, config.cluster.ranks_per_cell, socket.gethostname())
    try:
        return msgspec.json.decode(data, type=NodeMap)
    except msgspec.MsgspecError as error:
        raise UserError("nodes.json", str(folder.node_map(attempt)), f"is no map of nodes ({error})") from error


def find_start(folder: RunFolder, *, attempt: int = 0, job: str = "", restarts: int = 0) -> RunStart | None:
    """The newest start that is written: of this attempt (0: any), of this job and restart of it (empty: any)."""
    attempts = [attempt] if attempt else sorted((int(one.name) for one in _numbered(folder.attempts)), reverse=True)
    for number in attempts:
        start = read_start(folder.start(number))
        if start is not None and (not job or (start.job, start.restarts) == (job, restarts)):
            return start
    return None


def read_start(path: Path) -> RunStart | None:
    """None while it is not there. Raises UserError if it is something else."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=RunStart)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise UserError("start.json", str(path), f"is no start of a run ({error})") from error


def _numbered(attempts: Path) -> list[Path]:
    return [one for one in attempts.iterdir() if one.name.isdigit()] if attempts.is_dir() else []
