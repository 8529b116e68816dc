"""Every kind of trouble that a node can have is named with the node, the field and the remedy; what is whole is let through."""

from typing import Any

import msgspec
import pytest

from gyre_hpc.config.compose import compose_config
from gyre_hpc.config.schema import ClusterKind, Config
from gyre_hpc.errors import UserError
from gyre_hpc.launch.preflight.facts import Connection, Gpu, Leftover, NodeProbe, Place, Unseen
from gyre_hpc.launch.preflight.judge import LEAST_INODES, Verdict, Weight, judge
from gyre_hpc.launch.preflight.table import table

HOSTS = ("n1", "n2", "n3")
GPU = Gpu(name="H200", memory_mb=140_000, used_mb=500)
VERSIONS = {"gyre": "0.1.0", "sources": "ab12", "python": "3.11.7", "torch": "2.13.0", "sglang": "", "format": "2", "driver": "570.1"}
ROOM = Place(path="/shared", free_bytes=50 << 30, free_inodes=1 << 20)


@pytest.fixture
def config() -> Config:
    config = compose_config(["cluster.slurm.nodes=3", "cluster.slurm.gpus_per_node=1", "network.interface=ib0", "paths.run=/shared/run"])
    config.cluster.kind = ClusterKind.slurm
    return config


def whole(node: int, **other: Any) -> NodeProbe:
    """A node without any trouble, but for `other`."""
    ways = [Connection(to=to, address=f"10.0.0.{to}:17001", seconds=0.001, ahead_s=0.02) for to in ((0, 1, 2) if node == 0 else (0,))]
    fields = {"address": f"10.0.0.{node}", "run": ROOM, "scratch": ROOM, "cache": ROOM, "gpus": (GPU,), "versions": VERSIONS}
    return NodeProbe(node=node, host=HOSTS[node], **{**fields, "connections": tuple(ways), **other})


def judged(config: Config, *others: NodeProbe, without: int = -1) -> Verdict:
    """Three whole nodes, with `others` in the place of some."""
    probes = {node: whole(node) for node in range(3)} | {probe.node: probe for probe in others}
    probes.pop(without, None)
    return judge(probes, HOSTS, config)


def test_nodes_without_trouble_are_let_through(config: Config):
    verdict = judged(config)
    assert verdict.troubles == ()
    verdict.enforce()
    lines = table(verdict, HOSTS).splitlines()
    assert len(lines) == 5 and [line.split()[0] for line in lines[1:4]] == list(HOSTS) and "1 x H200" in lines[2] and "1.0 ms" in lines[2]


REFUSED = {
    "run folder read-only": (
        {"run": Place(path="/shared", error="Read-only file system")},
        "paths.run='/shared'.*n2.*Read-only.*name a folder",
    ),
    "run folder full": ({"run": Place(path="/shared", free_bytes=1000)}, "paths.run.*n2: 0 MB are free.*make room"),
    "scratch without inodes": (
        {"scratch": Place(path="/tmp", free_bytes=50 << 30, free_inodes=LEAST_INODES - 1)},
        "paths.scratch='/tmp'.*n2: room for 9999 more files",
    ),
    "cache full": ({"cache": Place(path="/cache", free_bytes=1 << 20)}, "paths.cache.*n2"),
    "no such card": ({"address": "", "address_error": "no network card of that name"}, "network.interface='ib0'.*n2: no network card"),
    "loopback": ({"address": "127.0.0.1"}, "network.interface='ib0'.*n2: other nodes cannot reach it.*hostname"),
    "no way back": (
        {"connections": (Connection(to=0, address="10.0.0.0:17001", error="timed out"),)},
        r"network.port_range=.*n2: no connection to n1 at 10.0.0.0:17001 \(timed out\); name ports",
    ),
    "nvidia-smi broken": ({"gpus": (), "gpu_error": "nvidia-smi: no driver"}, "gpus_per_node=1.*n2: nvidia-smi: no driver"),
    "too few GPUs": ({"gpus": ()}, "gpus_per_node=1: n2: 0 are to be seen"),
    "GPU taken": ({"gpus": (Gpu(name="H200", memory_mb=100, used_mb=11),)}, "GPU='0 .H200.'.*n2: 11 of 100 MB are taken"),
    "folder that a sandbox does not see": (
        {"unseen": Unseen(field="paths.scratch", path="/shared/s", error="bwrap: Permission denied")},
        "paths.scratch='/shared/s': n2: a sandbox cannot use it there .bwrap: Permission denied.; .*chown it",
    ),
    "left over beside GPUs": ({"leftovers": (Leftover(pid=77, command="python -m x"),)}, "processes='77'.*n2: .*kill 77"),
    **{
        name: ({"versions": {**VERSIONS, name: "other"}}, f"{name}='other'.*n2: .*use one environment")
        for name in ("sources", "python", "torch")
    },
}


@pytest.mark.parametrize(("trouble", "said"), REFUSED.values(), ids=REFUSED)
def test_a_trouble_is_refused_with_node_and_remedy(config: Config, trouble: dict[str, Any], said: str):
    verdict = judged(config, whole(1, **trouble))
    assert {one.host for one in verdict.refusals} == {"n2"}
    with pytest.raises(UserError, match=said):
        verdict.enforce()
    assert f"\nrefused: {verdict.refusals[0]}" in table(verdict, HOSTS) and table(verdict, HOSTS).endswith("before a run starts there")


def test_a_node_that_does_not_answer_is_refused_by_its_name(config: Config):
    verdict = judged(config, without=2)
    with pytest.raises(UserError, match="paths.run='/shared/run': n3: it did not answer"):
        verdict.enforce()
    assert "n3    no answer" in table(verdict, HOSTS)
    unknown = judge({0: whole(0)}, ["n1", "", ""], config)
    assert [one.host for one in unknown.refusals] == ["node 1", "node 2"]


def test_the_way_from_the_first_node_counts_too(config: Config):
    first = whole(0)
    ways = (first.connections[0], msgspec.structs.replace(first.connections[1], error="refused"), first.connections[2])
    config.network.port_range = "17000-17100"
    with pytest.raises(UserError, match="network.port_range='17000-17100': n1: no connection to n2 .*another network.interface"):
        judged(config, whole(0, connections=ways)).enforce()


@pytest.mark.parametrize(
    ("ahead_s", "seconds", "weight"),
    [(0.3, 0.001, None), (-3.0, 0.001, Weight.note), (7.0, 0.001, Weight.refuse), (-7.0, 0.001, Weight.refuse), (0.9, 1.0, None)],
)
def test_clocks_may_differ_a_little_and_never_much(config: Config, ahead_s: float, seconds: float, weight: Weight | None):
    first = whole(0)
    ways = tuple(msgspec.structs.replace(way, ahead_s=ahead_s, seconds=seconds) if way.to == 2 else way for way in first.connections)
    troubles = judged(config, whole(0, connections=ways)).troubles
    assert [trouble.weight for trouble in troubles] == ([weight] if weight else [])
    assert not troubles or (troubles[0].host == "n3" and ("behind" if ahead_s < 0 else "ahead of") in troubles[0].what)


def test_what_only_may_matter_is_said_and_let_through(config: Config):
    config.cluster.slurm.gpus_per_node = 0
    other = whole(1, gpus=(), versions={**VERSIONS, "driver": "999"}, sandbox="not installed", leftovers=(Leftover(pid=7, command="x"),))
    verdict = judged(config, other)
    assert [trouble.field for trouble in verdict.troubles] == ["processes", "sandbox.kind", "driver", "GPUs"]
    verdict.enforce()
    assert table(verdict, HOSTS).count("\nnote: n2: ") == 4 and "NO SANDBOX" in table(verdict, HOSTS)


def test_a_sandbox_that_was_asked_for_must_work(config: Config):
    config.sandbox.kind = type(config.sandbox.kind).bwrap
    with pytest.raises(UserError, match="sandbox.kind='bwrap': n2: does not work there .not installed."):
        judged(config, whole(1, sandbox="not installed")).enforce()
    config.sandbox.kind = type(config.sandbox.kind).none
    assert judged(config, whole(1, sandbox="not installed")).troubles == ()


def test_several_refusals_are_counted(config: Config):
    lost = {"run": Place(path="/shared", error="x")}
    with pytest.raises(UserError, match=r"n1: .*\(and 2 more: gyre preflight shows all\)"):
        judged(config, *(whole(node, **lost) for node in range(3))).enforce()


def test_the_odd_one_out_is_named_and_not_the_first_by_habit(config: Config):
    verdict = judged(config, whole(0, versions={**VERSIONS, "torch": "2.0"}))
    assert [(trouble.host, trouble.field, trouble.value) for trouble in verdict.troubles] == [("n1", "torch", "2.0")]
