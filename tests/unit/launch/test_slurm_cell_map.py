"""Cells on the nodes of an allocation: their sizes, what lies where, and what cannot be."""

import pytest

from gyre_hpc.allocation.base import Switch
from gyre_hpc.config.schema import ClusterConfig, Config
from gyre_hpc.errors import UserError
from gyre_hpc.launch.slurm.cell_map import node_map
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


def test_cells_without_gpus_are_spread_over_the_nodes():
    places = node_map(config(3), ["n1", "n2"])
    assert places.cells[0].supervisors == (FIRST,)
    assert sorted(len(places.cells_on(node.supervisor)) for node in places.nodes) == [1, 2]


def test_fewer_cells_than_gpus_leave_some_unused():
    assert len(node_map(config(3, 2, gpus=8), HOSTS).cells) == 3


@pytest.mark.parametrize(("cells", "ranks", "gpus"), [(17, 2, 8), (3, 16, 8), (1, 3 * 16, 8)])
def test_too_few_gpus_for_the_cells_is_said_with_what_there_is(cells: int, ranks: int, gpus: int):
    with pytest.raises(UserError, match="4 nodes of 8 GPUs"):
        node_map(config(cells, ranks, gpus), HOSTS)
