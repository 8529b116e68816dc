"""Each cell sees its own devices."""

from pathlib import Path

import pytest

from gyre_hpc.config.schema import ClusterConfig, Config
from gyre_hpc.protocol.node_map import CellPlace, local_map
from gyre_hpc.supervisor.commands import Commands
from gyre_hpc.supervisor.devices import Places, devices_here


@pytest.mark.parametrize(
    ("named", "expected"),
    [("0,1", ("0", "1")), ("3", ("3",)), ("GPU-7f,MIG-3a", ("GPU-7f", "MIG-3a")), ("", ()), ("-1", ()), ("0,-1,2", ("0",)), ("0, 0", ("0", "0"))],
)  # fmt: skip
def test_what_the_environment_names_is_what_there_is(tmp_path: Path, named: str, expected: tuple[str, ...]):
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia0").touch()
    assert devices_here({"CUDA_VISIBLE_DEVICES": named}, tmp_path) == expected


def test_without_a_name_they_are_counted_from_0_whichever_the_container_was_given(tmp_path: Path):
    (tmp_path / "dev").mkdir()
    assert devices_here({}, tmp_path) == ()
    for name in ("nvidia3", "nvidia11", "nvidiactl", "nvidia-uvm"):
        (tmp_path / "dev" / name).touch()
    assert devices_here({}, tmp_path) == ("0", "1")


def places(devices: tuple[str, ...], cells: int, ranks: int) -> Places:
    return Places(local_map(cells, ranks, "n1").cells, devices)


def test_cells_have_slices_that_do_not_meet():
    here = places(tuple("abcdefg"), 3, 2)
    assert [here.environment(f"cell-{number}")["CUDA_VISIBLE_DEVICES"] for number in range(3)] == ["a,b", "c,d", "e,f"]


def test_the_slots_of_the_map_count_on_each_node():
    here = Places([CellPlace("cell-5", ("supervisor-0", "supervisor-3"), (2, 0))], ("a", "b", "c"))
    assert here.environment("cell-5") == {"CUDA_VISIBLE_DEVICES": "c,a"}


def test_where_there_are_too_few_for_all_cells_none_is_given_any():
    assert places(("0", "1", "2"), 2, 2).environment("cell-0") == {}


def test_cells_that_nobody_planned_take_the_next_places_and_keep_them():
    here = Places((), tuple("abcd"), joining=2, ranks=2)
    given = [here.environment(cell)["CUDA_VISIBLE_DEVICES"] for cell in ("cell-9", "cell-4", "cell-9", "cell-4")]
    assert given == ["a,b", "c,d", "a,b", "c,d"]
    assert Places((), tuple("abc"), joining=2, ranks=2).environment("cell-9") == {}


@pytest.mark.parametrize(("devices", "expected"), [(("4", "5", "6", "7"), "6,7"), ((), None)])
def test_the_ranks_of_a_cell_are_started_with_their_devices_and_other_processes_with_none(devices: tuple[str, ...], expected: str | None):
    config = Config(cluster=ClusterConfig(cells=2, ranks_per_cell=2))
    here = places(devices, 2, 2)
    commands = Commands(config=config, run="/run", scratch="/scratch", attempt=1, supervisor_url="http://127.0.0.1:5", places=here)
    assert commands.build("cell-1", 1).environment.get("CUDA_VISIBLE_DEVICES") == expected
    assert "CUDA_VISIBLE_DEVICES" not in commands.build("gateway-0", 1).environment
