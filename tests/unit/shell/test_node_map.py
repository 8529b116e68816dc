"""Maps of nodes and starts, as they are read from a run folder."""

from pathlib import Path

import msgspec
import pytest

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.errors import UserError
from gyre_hpc.protocol.node_map import CellPlace, NodeMap, NodePlace, RunStart
from gyre_hpc.shell.node_map import find_start, read_map


def write(folder: RunFolder, path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(value))


def test_without_a_map_everything_is_on_one_node(tmp_path: Path):
    config = Config()
    config.cluster.cells, config.cluster.ranks_per_cell = 2, 3
    nodes = read_map(config, RunFolder(tmp_path), 1)
    assert [(place.supervisors, place.slots) for place in nodes.cells] == [(("supervisor-0",), (0, 1, 2)), (("supervisor-0",), (3, 4, 5))]
    assert nodes.runners == {"runner-0": "supervisor-0"}


def test_a_map_is_that_of_its_attempt_and_a_torn_one_is_refused(tmp_path: Path):
    folder = RunFolder(tmp_path)
    nodes = NodeMap((NodePlace("supervisor-0", "n1"),), (CellPlace("cell-0", ("supervisor-0",), (1,)),), {})
    write(folder, folder.node_map(2), nodes)
    assert read_map(Config(), folder, 2) == nodes != read_map(Config(), folder, 1)
    folder.node_map(2).write_text('{"nodes": [')
    with pytest.raises(UserError, match=r"nodes\.json"):
        read_map(Config(), folder, 2)


def test_a_node_finds_the_start_of_its_own_job_and_restart(tmp_path: Path):
    folder = RunFolder(tmp_path)
    assert find_start(folder) is None
    for attempt, (job, restarts) in enumerate([("7", 0), ("7", 1), ("8", 0)], start=1):
        write(folder, folder.start(attempt), RunStart(attempt, f"http://n:{attempt}", job=job, restarts=restarts))
    (folder.attempts / "4").mkdir()

    def found(**wanted: object) -> int | None:
        start = find_start(folder, **wanted)  # type: ignore[arg-type]
        return None if start is None else start.attempt

    assert (found(job="7"), found(job="7", restarts=1), found(job="8"), found(job="9")) == (1, 2, 3, None)
    assert (found(), found(attempt=1), found(attempt=4)) == (3, 1, None)
    folder.start(4).write_text("{")
    with pytest.raises(UserError, match=r"start\.json"):
        found()
