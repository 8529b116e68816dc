"""Where a rank stands, and where its cell's nodes meet."""

from pathlib import Path

import pytest

from gyre_hpc.cell.place import Place, meet, root_pid, server_folder
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config, PathsConfig
from gyre_hpc.engines.sglang.parts import Nodes
from gyre_hpc.shell.arguments import Birth


class Wires:
    """The channels of a cell's ranks: what the leader sends is what each of the others receives."""

    def __init__(self) -> None:
        self.sent: dict[int, bytes] = {}

    def send(self, rank: int, data: bytes, deadline_s: float) -> None:
        self.sent[rank] = data

    def receive(self, rank: int, deadline_s: float) -> bytes:
        assert rank == 0
        return self.sent[1]


def test_a_rank_without_torchrun_is_alone():
    assert Place.of({}) == Place(rank=0, world=1)
    assert Place.of({}).is_leader and Place.of({}).holds_server


def test_torchrun_says_on_which_node_a_rank_is():
    said = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2"}
    place = Place.of(said)
    assert (place.rank, place.world, place.local_rank, place.node, place.num_nodes) == (5, 8, 1, 1, 2)
    assert not place.is_leader and not place.holds_server
    assert Place.of(said | {"RANK": "4", "LOCAL_RANK": "0"}).holds_server


def test_one_node_has_nowhere_to_meet():
    assert meet(Place(rank=0, world=4), None, "127.0.0.1", 10.0) == Nodes()


def test_all_nodes_are_told_the_same_address_on_the_leader_s_interface():
    wires = Wires()
    own = meet(Place(rank=0, world=4, num_nodes=2), wires, "127.0.0.1", 10.0)
    host, _, port = own.address.rpartition(":")
    assert (own.number, own.count, host) == (0, 2, "127.0.0.1") and int(port) > 0
    assert set(wires.sent) == {1, 2, 3}, "ranks that hold no server meet too: all do the same"
    other = meet(Place(rank=2, world=4, node=1, num_nodes=2), wires, "127.0.0.1", 10.0)
    assert other == Nodes(number=1, count=2, address=own.address)


@pytest.fixture
def birth(tmp_path: Path) -> Birth:
    (tmp_path / "run").mkdir()
    config = Config(paths=PathsConfig(scratch=str(tmp_path / "scratch")))
    return Birth(
        name="cell-3", attempt=2, incarnation=7, supervisor_url="", folder=RunFolder(tmp_path / "run"), config=config, run_token="t"
    )


def test_incarnations_of_a_cell_find_its_server_where_it_was_and_attempts_and_nodes_have_their_own(birth: Birth):
    assert server_folder(birth, Nodes()).name == "2-cell-3"
    assert server_folder(birth, Nodes(number=1, count=2, address="a:1")).name == "2-cell-3.1"
    assert server_folder(birth, Nodes()).parent.parent == Path(birth.config.paths.scratch)


def test_the_end_of_the_supervisor_ends_a_server_not_that_of_a_cell_s_agent(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GYRE_SUPERVISOR_PID", "4711")
    assert root_pid() == 4711
