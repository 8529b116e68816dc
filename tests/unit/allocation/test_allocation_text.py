"""Nodes and switches from what SLURM prints and from YAML."""

import pytest

from gyre_hpc.allocation.base import Node, Switch
from gyre_hpc.allocation.node_list import gpus_of, read_nodes
from gyre_hpc.allocation.topology import Tree, read_topology
from gyre_hpc.errors import UserError

SCONTROL_NODES = """
NodeName=n1 Arch=x86_64 CoresPerSocket=1
   CPUAlloc=0 CPUEfctv=2 CPUTot=2 CPULoad=0.50
   AvailableFeatures=(null)
   Gres=gpu:h100:4(S:0-1),craynetwork:2
   NodeAddr=10.0.0.1 NodeHostName=n1 Version=22.05.8
   OS=Linux 6.1.0 #1 SMP

NodeName=n2 Arch=x86_64 Gres=(null) State=IDLE
"""
TOPOLOGY_CONF = """
# the fabric
SwitchName=leaf1 Nodes=n[1-2]   # left
switchname=leaf2 nodes=n[3-4],\\
n5 LinkSpeed=100
SwitchName=spine Switches=leaf[1-2]
"""
SCONTROL_TOPOLOGY = """
SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-2]
SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n[3-5]
SwitchName=spine Level=1 LinkSpeed=1 Nodes=n[1-5] Switches=leaf[1-2]
"""
YAML = """
switches:
  - {name: leaf1, nodes: [n1, n2]}
  - {name: leaf2, nodes: "n[3-5]"}
  - {name: spine, switches: "leaf[1-2]"}
"""


def test_scontrol_show_node_is_read():
    assert read_nodes(SCONTROL_NODES) == (
        Node(name="n1", kind="h100", num_devices=4),
        Node(name="n2", kind="", num_devices=0),
    )


@pytest.mark.parametrize(
    ("gres", "counts"),
    [
        ("(null)", {}),
        ("gpu:2", {"gpu": 2}),
        ("gpu", {"gpu": 1}),
        ("gpu:a100", {"a100": 1}),
        ("gpu:A100:2(IDX:0,3)", {"a100": 2}),
        ("gpu:a100:2(S:0-1),gpu:v100:1,shard:8", {"a100": 2, "v100": 1}),
        ("gpu:0", {}),
    ],
)
def test_gres_is_counted_by_kind(gres: str, counts: dict[str, int]):
    assert gpus_of(gres, "Gres") == counts


def test_nodes_in_yaml():
    text = "nodes:\n  - {names: 'g[1-2]', kind: H100, devices: 8}\n  - {names: [c1, c2]}\n"
    assert [(node.name, node.kind, node.num_devices) for node in read_nodes(text)] == [
        ("g1", "h100", 8), ("g2", "h100", 8), ("c1", "", 0), ("c2", "", 0),
    ]  # fmt: skip


@pytest.mark.parametrize("text", [TOPOLOGY_CONF, SCONTROL_TOPOLOGY, YAML], ids=["topology.conf", "scontrol", "yaml"])
def test_three_ways_to_tell_the_same_tree(text: str):
    tree = Tree(read_topology(text))
    assert tree.order == ["leaf1", "leaf2", "spine"]
    assert tree.direct == {"leaf1": ("n1", "n2"), "leaf2": ("n3", "n4", "n5"), "spine": ()}
    assert tree.height == {"leaf1": 1, "leaf2": 1, "spine": 2}


def test_a_block_is_a_switch_of_its_own():
    tree = Tree(read_topology("BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n[3-4]\nBlockSizes=2,4\n"))
    assert (tree.direct, tree.parent) == ({"b1": ("n1", "n2"), "b2": ("n3", "n4")}, {})


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "--nodes"),
        ("[1, 2]", "--nodes"),
        ("{", "--nodes"),
        ("nodes: []", "names no node"),
        ("nodes: [{names: a, devices: 3}]", r"nodes\[0\].kind"),
        ("nodes: [{names: a, kind: x}]", r"nodes\[0\].kind"),
        ("nodes: [{names: a, kind: x, devices: true}]", r"nodes\[0\].devices"),
        ("nodes: [{names: a, kind: x, devices: -1}]", r"nodes\[0\].devices"),
        ("nodes: [{names: a, gpus: 1}]", r"nodes\[0\].gpus"),
        ("nodes: [{names: [a, a]}]", "twice"),
        ("nodes: [{names: {a: b}}]", r"nodes\[0\].names"),
        ("NodeName=a Gres=gpu:x:y", "Gres"),
        ("NodeName=DEFAULT Gres=gpu:2\nNodeName=a", "DEFAULT"),
        ("NodeName=a[1- Gres=gpu:2", "NodeName"),
    ],
)
def test_bad_nodes_are_refused_by_name(text: str, named: str):
    with pytest.raises(UserError, match=named):
        read_nodes(text)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "--topology"),
        ("switches: []", "names no switch"),
        ("switches: [{nodes: a}]", "has no name"),
        ("switches: [{name: a, leaves: b}]", "leaves"),
        ("SwitchName=a Switches=b", "no switch has this name"),
        ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2", "two switches"),
        ("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n1", "hangs on a and on b"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a", "below itself"),
        ("SwitchName=a Switches=c\nSwitchName=b Switches=c\nSwitchName=c Nodes=n", "below one only"),
    ],
)
def test_what_is_no_tree_is_refused_by_name(text: str, named: str):
    with pytest.raises(UserError, match=named):
        Tree(read_topology(text))


def test_a_chain_of_a_thousand_switches_is_a_tree():
    chain = [Switch(name=f"s{n}", switches=(f"s{n + 1}",) if n < 999 else (), nodes=("n",) if n == 999 else ()) for n in range(1000)]
    assert Tree(chain).height["s0"] == 1000
