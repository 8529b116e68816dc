"""A node that joins a run that nobody planned it for: which attempt it may join, and how many cells it brings."""

import json
import re

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.errors import UserError
from gyre_hpc.protocol.node_map import FIRST, NodeMap, RunStart
from gyre_hpc.shell.node_map import read_map, read_start
from gyre_hpc.supervisor.attempts import end_of, highest_attempt
from gyre_hpc.supervisor.here import Here

_NAME = re.compile(r"supervisor-j\w+n\d+")


class RunOver(Exception):
    """There is nothing to join: says why."""


def check_name(name: str) -> None:
    """--name: of a node that joins, or empty. Raises UserError: a planned node's name would take its place."""
    if name and name != FIRST and not _NAME.fullmatch(name):
        raise UserError("--name", name, "supervisor-j<job>n<node>, on a node that joins; planned nodes are told --node")


def newest_start(folder: RunFolder) -> RunStart | None:
    """Of the attempt that lives; None while it has not begun to listen. Raises RunOver."""
    attempt = highest_attempt(folder.attempts)
    if attempt == 0:
        return None
    try:
        end = json.loads(end_of(folder, attempt).read_text())
    except FileNotFoundError:
        return read_start(folder.start(attempt))
    raise RunOver(f"attempt {attempt}, the newest of the run, is over: {end['reason']} (exit code {end['exit_code']})")


def room_for_cells(here: Here, attempt: int) -> int:
    """One cell for each ranks_per_cell GPUs; without GPUs as many as the planned nodes have on average, rounded up. Raises UserError."""
    ranks = here.config.cluster.ranks_per_cell
    if not here.devices:
        return cells_per_node(read_map(here.config, here.folder, attempt))
    if len(here.devices) < ranks:
        raise UserError(
            "cluster.ranks_per_cell", ranks, f"no cell fits on {here.host}, which has {len(here.devices)} GPUs: take larger nodes"
        )
    return len(here.devices) // ranks


def cells_per_node(nodes: NodeMap) -> int:
    """Of the planned ones, rounded up."""
    return -(-len(nodes.cells) // max(1, len(nodes.nodes)))
