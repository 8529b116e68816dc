"""The cut into cells: its properties on random allocations, and against all partitions of small ones."""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.allocation import Node, Partition, Reason, Switch, partition
from gyre_hpc.allocation.partition import nodes_per_cell
from gyre_hpc.errors import UserError


@dataclass(frozen=True)
class Case:
    """A random allocation: nodes on leaves, leaves below middles, middles below one root or none; some nodes unlisted."""

    nodes: tuple[Node, ...]
    switches: tuple[Switch, ...]
    ranks: int


@st.composite
def cases(draw: st.DrawFn, most_nodes: int, one_kind: bool = False) -> Case:
    kinds = ["h100"] if one_kind else ["h100", "a100", ""]
    sizes = {kind: draw(st.sampled_from([[1], [2], [4], [2, 4], [1, 3]])) for kind in kinds}
    nodes, leaves = [], {}
    for number in range(draw(st.integers(1, most_nodes))):
        kind = draw(st.sampled_from(kinds))
        name = f"n{number}"
        nodes.append(Node(name=name, kind=kind, num_devices=draw(st.sampled_from(sizes[kind])) if kind else 0))
        leaves[name] = draw(st.integers(-1, 3))
    if draw(st.integers(0, 3)) == 0:
        return Case(tuple(nodes), (), draw(st.integers(1, 9)))
    middle = [draw(st.integers(0, 1)) for _ in range(4)]
    switches = [Switch(name=f"leaf{n}", nodes=tuple(name for name, leaf in leaves.items() if leaf == n)) for n in range(4)]
    switches += [Switch(name=f"mid{m}", switches=tuple(f"leaf{n}" for n in range(4) if middle[n] == m)) for m in range(2)]
    if draw(st.booleans()):
        switches.append(Switch(name="root", switches=("mid0", "mid1"), nodes=tuple(n for n, leaf in leaves.items() if leaf == -1)))
    return Case(tuple(nodes), tuple(switches), draw(st.integers(1, 9)))


def above(case: Case, node: str) -> list[str]:
    """Switches above a node, lowest first; without a topology one that is above all."""
    if not case.switches:
        return ["all"]
    way = [switch.name for switch in case.switches if node in switch.nodes]
    while way and (parents := [switch.name for switch in case.switches if way[-1] in switch.switches]):
        way += parents
    return way


def level(case: Case, name: str) -> int:
    """1 for a switch with nodes only."""
    below = next((switch.switches for switch in case.switches if switch.name == name), ())
    return 1 + max((level(case, child) for child in below), default=0)


def lowest(case: Case, nodes: Iterable[str]) -> str | None:
    """The lowest switch above all of `nodes`."""
    ways = [above(case, node) for node in nodes]
    return next((name for name in ways[0] if all(name in way for way in ways)), None)


def cut(case: Case, kind: str = "") -> Partition:
    return partition(case.nodes, case.switches, ranks_per_cell=case.ranks, kind=kind)


@given(cases(12))
def test_every_device_is_in_one_cell_or_left_over_with_a_reason(case: Case):
    made = cut(case)
    used = [(rank.node, cell.kind, rank.device) for cell in made.cells for rank in cell.ranks]
    left = [(each.node, each.kind, device) for each in made.leftovers for device in each.devices]
    assert sorted(used + left) == sorted((node.name, node.kind, index) for node in case.nodes for index in range(node.num_devices))
    assert all(each.text and each.devices for each in made.leftovers)
    assert set(made.without_devices) == {node.name for node in case.nodes if not node.num_devices}


@given(cases(12))
def test_cells_are_equal_of_one_kind_and_keep_the_ranks_of_a_node_together(case: Case):
    made, kind_of = cut(case), {node.name: node.kind for node in case.nodes}
    for cell in made.cells:
        assert len(cell.ranks) == case.ranks
        assert {kind_of[node] for node in cell.nodes} == {cell.kind}
        walked = [rank.node for rank in cell.ranks]
        assert walked == [node for node in cell.nodes for _ in range(cell.ranks_per_node)]
        assert all(sorted(ranks) == ranks for node in cell.nodes if (ranks := [r.device for r in cell.ranks if r.node == node]))
    assert len({(cell.kind, cell.name) for cell in made.cells}) == len(made.cells)


@given(cases(12))
def test_a_cell_lies_within_a_node_where_it_fits_else_below_the_switch_it_names(case: Case):
    size = {node.name: node.num_devices for node in case.nodes}
    for cell in cut(case).cells:
        assert (len(cell.nodes) == 1) == (size[cell.nodes[0]] >= case.ranks)
        if len(cell.nodes) == 1:
            assert (cell.switch, cell.height) == ("", 0)
        else:
            switch = lowest(case, cell.nodes)
            assert switch == (cell.switch or "all")
            assert cell.height == level(case, switch)


@given(cases(12), st.randoms(use_true_random=False))
def test_the_order_of_the_input_changes_nothing(case: Case, rng: random.Random):
    nodes, switches = list(case.nodes), list(case.switches)
    rng.shuffle(nodes)
    rng.shuffle(switches)
    mixed = [Switch(name=s.name, switches=tuple(reversed(s.switches)), nodes=tuple(reversed(s.nodes))) for s in switches]
    assert partition(nodes, mixed, ranks_per_cell=case.ranks) == cut(case)


@given(cases(12))
def test_every_node_and_every_switch_holds_as_many_cells_as_its_devices_allow(case: Case):
    made = cut(case)
    names = {"all"} if not case.switches else {switch.name for switch in case.switches}
    for kind in {node.kind for node in case.nodes if node.num_devices}:
        own = [node for node in case.nodes if node.kind == kind]
        cells = made.of_kind(kind)
        for node in own:
            assert sum(cell.nodes == (node.name,) for cell in cells) == node.num_devices // case.ranks
        for num in {nodes_per_cell(case.ranks, node.num_devices) for node in own} - {1}:
            pool = {node.name for node in own if nodes_per_cell(case.ranks, node.num_devices) == num}
            for switch in names:
                below = {name for name in pool if switch in above(case, name)}
                assert sum(len(cell.nodes) > 1 and set(cell.nodes) <= below for cell in cells) == len(below) // num


def all_partitions(nodes: list[str], num: int) -> Iterable[list[tuple[str, ...]]]:
    """Every set of disjoint groups of `num`."""
    yield []
    for start, first in enumerate(nodes):
        rest = nodes[start + 1 :]
        for others in combinations(rest, num - 1):
            left = [name for name in rest if name not in others]
            for more in all_partitions(left, num):
                yield [(first, *others), *more]


@given(cases(7, one_kind=True))
def test_no_partition_of_a_small_allocation_has_more_cells_or_as_many_over_fewer_switches(case: Case):
    made = cut(case)
    for num in {nodes_per_cell(case.ranks, node.num_devices) for node in case.nodes} - {1}:
        pool = [node.name for node in case.nodes if nodes_per_cell(case.ranks, node.num_devices) == num]
        ours = [cell for cell in made.cells if len(cell.nodes) == num and cell.nodes[0] in pool]
        best = (0, 0)
        for groups in all_partitions(pool, num):
            switches = [lowest(case, group) for group in groups]
            if None not in switches:
                best = min(best, (-len(groups), sum(level(case, switch) for switch in switches if switch)))
        assert (-len(ours), sum(cell.height for cell in ours)) == best


def test_leftovers_say_why():
    nodes = [
        Node(name="a1", kind="a100", num_devices=4),
        *(Node(name=f"h{n}", kind="h100", num_devices=3) for n in range(1, 5)),
        Node(name="lost", kind="h100", num_devices=3),
    ]
    switches = [Switch(name="leaf", nodes=("a1", "h1", "h2", "h3")), Switch(name="island", nodes=("h4",))]
    made = partition(nodes, switches, ranks_per_cell=4, kind="h100")
    assert [cell.nodes for cell in made.cells] == [("h1", "h2")]
    assert {each.node: (each.reason, each.devices) for each in made.leftovers} == {
        "a1": (Reason.other_kind, (0, 1, 2, 3)),
        "h1": (Reason.too_few_on_node, (2,)),
        "h2": (Reason.too_few_on_node, (2,)),
        "h3": (Reason.too_few_nodes, (0, 1, 2)),
        "h4": (Reason.too_few_nodes, (0, 1, 2)),
        "lost": (Reason.no_switch, (0, 1, 2)),
    }
    assert {each.node: each.text for each in made.leftovers}["h4"] == "a cell needs 2 nodes with 2 devices each; 1 left below island"


def test_several_kinds_stand_side_by_side():
    nodes = [Node(name="x", kind="a100", num_devices=4), Node(name="x", kind="h100", num_devices=8)]
    made = partition(nodes, ranks_per_cell=4)
    assert made.kinds == ("h100", "a100")
    assert [(cell.name, cell.kind) for cell in made.cells] == [("cell-0", "a100"), ("cell-0", "h100"), ("cell-1", "h100")]


@pytest.mark.parametrize(("ranks", "kind", "named"), [(0, "", "--ranks=0"), (10**9, "", "--ranks"), (1, "b200", "there is h100")])
def test_what_cannot_be_cut_is_refused_by_name(ranks: int, kind: str, named: str):
    with pytest.raises(UserError, match=named):
        partition([Node(name="n", kind="h100", num_devices=1)], ranks_per_cell=ranks, kind=kind)


def test_four_thousand_nodes_below_two_levels_of_switches():
    nodes = [Node(name=f"n{n}", kind="h100", num_devices=8) for n in range(4000)]
    leaves = [Switch(name=f"leaf{k}", nodes=tuple(f"n{n}" for n in range(33 * k, min(33 * k + 33, 4000)))) for k in range(122)]
    spine = Switch(name="spine", switches=tuple(leaf.name for leaf in leaves))
    made = partition(nodes, [*leaves, spine], ranks_per_cell=32)
    assert len(made.cells) == 1000
    assert sum(cell.switch == "spine" for cell in made.cells) == 1000 - 121 * (33 // 4) - 7 // 4
