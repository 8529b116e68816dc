"""Cells on the nodes of an allocation: their sizes, what lies where, and what cannot be."""

import pytest

from gyre_hpc.allocation.base import Switch
from gyre_hpc.config.schema import ClusterConfig, Config
from gyre_hpc.errors import UserError
from gyre_hpc.launch.slurm.cell_map import described, node_map
from gyre_hpc.protocol.node_map import FIRST


def config(cells: int, ranks: int = 1, gpus: int = 0) -> Config:
    cluster = ClusterConfig(cells=cells, ranks_per_cell=ranks)
    cluster.slurm.gpus_per_node = gpus
    return Config(cluster=cluster)


HOSTS = ["n1", "n2", "n3", "n4"]


@pytest.mark.parametrize(("ranks", "cells", "nodes_of_one", "slots"), [(2, 16, 1, 2), (8, 4, 1, 8), (16, 2, 2, 8)])
def test_four_nodes_of_eight_gpus_are_cut_whole(ranks: int, cells: int, nodes_of_one: int, slots: int):
    places = node_map(config(cells, ranks, gpus=8), HOSTS)
    assert [cell.cell for cell in places.cells] == [f"cell-{number}" for number in range(cells)]
    assert {(len(cell.supervisors), len(cell.slots)) for cell in places.cells} == {(nodes_of_one, slots)}
    taken = [(supervisor, slot) for cell in places.cells for supervisor in cell.supervisors for slot in cell.slots]
    assert len(set(taken)) == len(taken) == 32


def test_the_core_begins_on_the_first_node_whatever_the_topology_says():
    switches = (
        Switch(name="top", switches=("a", "b")),
        Switch(name="a", nodes=("n2", "n4")),
        Switch(name="b", nodes=("n1", "n3")),
    )
    places = node_map(config(2, 16, gpus=8), HOSTS, switches)
    assert [cell.supervisors for cell in places.cells] == [("supervisor-0", "supervisor-2"), ("supervisor-1", "supervisor-3")]


def test_every_node_has_a_supervisor_and_a_runner_by_its_place():
    places = node_map(config(4), ["b", "a"])
    assert [(node.supervisor, node.host) for node in places.nodes] == [("supervisor-0", "b"), ("supervisor-1", "a")]
    assert places.runners == {"runner-0": "supervisor-0", "runner-1": "supervisor-1"}


@pytest.mark.parametrize(
    ("cells", "ranks", "nodes", "loads"),
    [
        (3, 1, 2, [2, 1]),
        (6, 1, 4, [2, 2, 1, 1]),
        (9, 1, 4, [3, 2, 2, 2]),
        (3, 1, 4, [1, 1, 1, 0]),
        (6, 2, 4, [2, 2, 1, 1]),  # three places on each would give four cells
        (2, 4, 4, [1, 1, 1, 1]),  # each on two nodes
        (2, 4, 3, [1, 1, 0]),  # three places on each would give one cell
        (5, 4, 2, [3, 2]),
    ],
)
def test_cells_without_gpus_are_spread_evenly_over_the_nodes(cells: int, ranks: int, nodes: int, loads: list[int]):
    places = node_map(config(cells, ranks), HOSTS[:nodes])
    assert places.cells[0].supervisors[0] == FIRST and len(places.cells) == cells
    assert [len(places.cells_on(node.supervisor)) for node in places.nodes] == loads
    slots = [(supervisor, slot) for cell in places.cells for supervisor in cell.supervisors for slot in cell.slots]
    assert len(set(slots)) == len(slots) == cells * ranks


@pytest.mark.parametrize("cells", range(1, 14))
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_no_node_without_gpus_has_two_cells_more_than_another(cells: int, ranks: int):
    for nodes in range(1, 5):
        for switches in ((), (Switch(name="a", nodes=tuple(reversed(HOSTS))),)):
            places = node_map(config(cells, ranks), HOSTS[:nodes], switches)
            loads = [len(places.cells_on(node.supervisor)) for node in places.nodes]
            assert max(loads) - min(loads) <= 1 and len(places.cells) == cells, (nodes, loads)


def test_a_dry_run_shows_the_cells_that_the_run_takes_and_the_nodes_without_one():
    lines = described(config(3), HOSTS).splitlines()
    assert [line.split()[:3] for line in lines[1:4]] == [[f"cell-{number}", "cpu", f"n{number + 1}"] for number in range(3)]
    assert lines[-1] == "without a cell, for harnesses only: n4 (cluster.cells=3 of cluster.ranks_per_cell=1 take 3 of 4 nodes)"
    assert not any("without a cell" in line for line in described(config(6), HOSTS).splitlines())
    of_gpus = described(config(3, 2, gpus=8), HOSTS)
    assert "there are GPUs for 13 more (cluster.cells=3)" in of_gpus and "n[2-4] (cluster.cells=3" in of_gpus


def test_fewer_cells_than_gpus_leave_some_unused():
    assert len(node_map(config(3, 2, gpus=8), HOSTS).cells) == 3


@pytest.mark.parametrize(("cells", "ranks", "gpus"), [(17, 2, 8), (3, 16, 8), (1, 3 * 16, 8)])
def test_too_few_gpus_for_the_cells_is_said_with_what_there_is(cells: int, ranks: int, gpus: int):
    with pytest.raises(UserError, match="4 nodes of 8 GPUs"):
        node_map(config(cells, ranks, gpus), HOSTS)
