"""On which node a process of a run is, and under which pid there."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.errors import UserError
from gyre_hpc.observability.events import Event, read_events
from gyre_hpc.observability.status import Status
from gyre_hpc.protocol.node_map import FIRST, NodeMap
from gyre_hpc.protocol.process_names import in_short
from gyre_hpc.shell.node_map import read_start
from gyre_hpc.supervisor.commands import settings_for


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    name: str
    """For people: cell-1 rank 0."""
    host: str
    pid: int


def known_processes(folder: RunFolder, config: Config, attempt: int) -> list[str]:
    """Those that the attempt was to have, and those that came since. Without an attempt: of the first one on one machine."""
    try:
        nodes = msgspec.json.decode(folder.node_map(attempt).read_bytes(), type=NodeMap)
    except (OSError, msgspec.MsgspecError):
        nodes = None
    wanted = settings_for(config, attempt, nodes)
    events = [event for event in read_events(folder.events_folder) if event.attempt == attempt]
    came = [str(event.fields["process"]) for event in events if event.kind == "process_registered"]
    return list(dict.fromkeys([*wanted.services, *wanted.cells, *wanted.extras, *came]))


def places_of(folder: RunFolder, attempt: int, status: Status | None, process: str) -> list[Place]:
    """Of a cell: its ranks and the server that is its engine. Raises UserError for a process that is not known or has not spoken yet."""
    cell = next((cell for cell in status.cells if cell.name == process), None) if status is not None else None
    events = [event for event in read_events(folder.events_folder) if event.attempt == attempt]
    hosts = _hosts(folder, attempt, process, events)
    if cell is not None and cell.pids:
        parts = len(hosts)
        each = max(1, len(cell.pids) // parts)
        ranks = [
            Place(name=f"{process} rank {rank}", host=hosts[min(rank // each, parts - 1)], pid=pid) for rank, pid in enumerate(cell.pids)
        ]
        return ranks + [Place(name=f"{process} server", host=hosts[0], pid=pid) for pid in cell.engine_pids]
    registered = [event for event in events if event.kind == "process_registered" and event.fields["process"] == process]
    if not registered:
        there = in_short(dict.fromkeys(str(event.fields["process"]) for event in events if event.kind == "process_registered"))
        remedy = f"no such process has spoken in attempt {attempt}; those that have: {there or 'none'}"
        raise UserError("--process", process, remedy)
    return [Place(name=process, host=hosts[0], pid=int(registered[-1].fields["pid"]))]


def is_of_run(pid: int, folder: RunFolder) -> bool:
    """It lives here and was started for this run: pids are used again."""
    try:
        return str(folder.root).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _hosts(folder: RunFolder, attempt: int, process: str, events: list[Event]) -> list[str]:
    """Of its parts, in order."""
    names: dict[str, str] = {}
    supervisors: tuple[str, ...] = ()
    try:
        nodes = msgspec.json.decode(folder.node_map(attempt).read_bytes(), type=NodeMap)
    except (OSError, msgspec.MsgspecError):
        nodes = NodeMap()
    names = {node.supervisor: node.host for node in nodes.nodes}
    supervisors = next((place.supervisors for place in nodes.cells if place.cell == process), ())
    if process in nodes.runners:
        supervisors = (nodes.runners[process],)
    for event in events:
        if event.kind == "node_joined" and process in event.fields["cells"]:
            return [str(event.fields["host"])]
    start = read_start(folder.start(attempt))
    first = start.host if start is not None else ""
    return [names.get(supervisor, "") or first for supervisor in supervisors or (FIRST,)]
