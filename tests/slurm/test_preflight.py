"""Pre-flight on a real SLURM: every node is asked, a node that cannot be used is named, nothing is left."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from gyre_hpc.sandboxes import Bubblewrap
from tests.slurm.cluster import Cluster, ask

GYRE = Path(sys.executable).with_name("gyre")


def preflight(cluster: Cluster, folder: Path, *overrides: str) -> tuple[int, dict[str, object], str]:
    words = ["cluster.kind=slurm", "cluster.slurm.nodes=2", "network.interface=hostname", f"paths.run={folder / 'run'}", *overrides]
    environ = {**cluster.environ, "XDG_CACHE_HOME": str(folder / "cache"), "HOME": os.environ["HOME"]}
    done = ask([GYRE, "preflight", "--json", *words], environ, 110.0, folder)
    return done.returncode, msgspec.json.decode(done.stdout) if done.stdout else {}, done.stderr


def test_every_node_is_asked_and_reaches_the_first(cluster: Cluster, shared_folder: Path):
    code, said, errors = preflight(cluster, shared_folder, "network.port_range=18000-18100")
    assert code == 0, (said, errors)
    nodes = said["probes"]
    assert isinstance(nodes, dict) and len({probe["host"] for probe in nodes.values()} & set(cluster.nodes)) == 2
    ways = [way for probe in nodes.values() for way in probe["connections"]]
    assert len(ways) == 3 and all(18000 <= int(way["address"].partition(":")[2]) <= 18100 for way in ways)
    assert [path.name for path in shared_folder.iterdir()] == ["cache"]


def test_a_card_that_no_node_has_is_refused_on_each_of_them(cluster: Cluster, shared_folder: Path):
    code, said, errors = preflight(cluster, shared_folder, "network.interface=nosuchcard0")
    assert code == 2 and said, errors
    troubles = said["troubles"]
    assert isinstance(troubles, list)
    refused = {(one["field"], one["host"]) for one in troubles if one["weight"] == "refuse"}
    assert {field for field, _ in refused} == {"network.interface"} and len({host for _, host in refused} & set(cluster.nodes)) == 2


def test_what_slurm_does_not_give_is_said(cluster: Cluster, shared_folder: Path):
    code, said, errors = preflight(cluster, shared_folder, "cluster.slurm.partition=nosuch")
    assert code == 2 and said == {} and "cluster.slurm.partition='nosuch'" in errors and "invalid partition" in errors


def test_a_folder_that_sandboxes_do_not_see_is_refused_on_each_node(
    cluster: Cluster, shared_folder: Path, needs: Callable[[str, str], None]
):
    needs("bwrap", Bubblewrap().probe())
    needs("root", "" if os.geteuid() == 0 else "only root can give a folder away and still use it")
    theirs = shared_folder / "theirs"
    theirs.mkdir(mode=0o700)
    os.chown(theirs, 12_345, 12_345)
    code, said, errors = preflight(cluster, shared_folder, f"paths.scratch={theirs / 's'}")
    assert code == 2 and said, errors
    troubles = said["troubles"]
    assert isinstance(troubles, list)
    refused = [one for one in troubles if one["weight"] == "refuse"]
    assert {(one["field"], one["value"]) for one in refused} == {("paths.scratch", str(theirs / "s"))}
    assert len({one["host"] for one in refused} & set(cluster.nodes)) == 2
    assert all("Permission denied" in one["what"] and "chown" in one["what"] for one in refused)
