"""What a node that nobody planned may join, and what it brings."""

from pathlib import Path

import msgspec
import pytest

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import ClusterConfig, Config
from gyre_hpc.errors import UserError
from gyre_hpc.protocol.node_map import CellPlace, NodeMap, NodePlace, RunStart
from gyre_hpc.supervisor.devices import kind_here
from gyre_hpc.supervisor.here import Here
from gyre_hpc.supervisor.joining import RunOver, cells_per_node, check_name, newest_start, room_for_cells


def attempt(folder: RunFolder, number: int, *, url: str = "", end: str = "") -> None:
    (folder.attempts / str(number)).mkdir(parents=True)
    if url:
        folder.start(number).write_bytes(msgspec.json.encode(RunStart(attempt=number, url=url)))
    if end:
        (folder.attempts / str(number) / "end.json").write_text(end)


def test_only_the_newest_attempt_can_be_joined_and_it_is_waited_for(tmp_path: Path):
    folder = RunFolder(tmp_path)
    assert newest_start(folder) is None
    attempt(folder, 1, url="http://a")
    found = newest_start(folder)
    assert found is not None and found.url == "http://a"
    attempt(folder, 2)
    assert newest_start(folder) is None, "attempt 1 is over: 2 was claimed"


def test_a_run_that_is_over_says_so(tmp_path: Path):
    folder = RunFolder(tmp_path)
    attempt(folder, 1, url="http://a", end='{"exit_code": 0, "reason": "all updates made", "time": 1.0}')
    with pytest.raises(RunOver, match="all updates made"):
        newest_start(folder)


@pytest.mark.parametrize("name", ["supervisor-1", "cell-1", "supervisor-j1", "supervisor-j1n0/.."])
def test_a_joining_node_takes_no_planned_nodes_name(name: str):
    with pytest.raises(UserError, match="--name"):
        check_name(name)


def test_names_of_joining_nodes():
    for name in ("", "supervisor-0", "supervisor-j123n4", "supervisor-jhostX77n0"):
        check_name(name)


def here(folder: Path, ranks: int, *devices: str) -> Here:
    config = Config(cluster=ClusterConfig(cells=5, ranks_per_cell=ranks))
    return Here(name="supervisor-j1n0", folder=RunFolder(folder), config=config, scratch=folder, devices=devices, host="n9")


def test_a_node_with_gpus_brings_as_many_cells_as_they_make(tmp_path: Path):
    assert room_for_cells(here(tmp_path, 2, *"abcde"), 1) == 2
    with pytest.raises(UserError, match="no cell fits on n9, which has 1 GPUs"):
        room_for_cells(here(tmp_path, 2, "a"), 1)


def test_a_node_without_gpus_brings_as_many_cells_as_a_planned_one_has(tmp_path: Path):
    assert room_for_cells(here(tmp_path, 1), 1) == 5
    nodes = tuple(NodePlace(f"supervisor-{index}", "") for index in range(2))
    assert cells_per_node(NodeMap(nodes, tuple(CellPlace(f"cell-{index}", ("supervisor-0",), (index,)) for index in range(3)))) == 2


def test_the_kind_of_gpu_is_the_drivers_word_for_it(tmp_path: Path):
    for bus, model in (("01", "NVIDIA H100 80GB HBM3"), ("02", "NVIDIA H100 80GB HBM3")):
        (tmp_path / "proc/driver/nvidia/gpus" / bus).mkdir(parents=True)
        (tmp_path / "proc/driver/nvidia/gpus" / bus / "information").write_text(f"Model: \t\t {model}\nIRQ:   \t\t 77\n")
    assert kind_here(("0", "1"), tmp_path) == "NVIDIA H100 80GB HBM3"
    assert kind_here((), tmp_path) == "", "none that this process may use"
    assert kind_here(("0",), tmp_path / "elsewhere")
