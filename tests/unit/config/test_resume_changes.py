"""`resume=RUN key=value`: what may change, what is refused by name, what can be forced, and what is told of it."""

import re
from pathlib import Path

import pytest

from gyre_hpc.config.changes import CHANGEABLE, COUNTED, SHAPES, Change, changes, leaves, nearest_changeable
from gyre_hpc.config.cluster_schema import ClusterKind
from gyre_hpc.config.compose import compose_config
from gyre_hpc.config.schema import Config, SchedulerMode
from gyre_hpc.config.stored import store_config
from gyre_hpc.errors import UserError


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder with five cells on one machine."""
    store_config(compose_config(["cluster.cells=5", "scheduler=colocate"]), tmp_path / "config.yaml")
    return tmp_path


def test_a_refusal_names_the_key_and_how_to_force_it(run: Path):
    with pytest.raises(UserError, match=r"trainer.lr=0.1: cannot change on resume.*launch.force=\[trainer.lr\]"):
        compose_config([f"resume={run}", "trainer.lr=0.1"])


def test_a_refusal_names_the_likest_keys_that_may_change_and_where_all_are(run: Path):
    with pytest.raises(UserError) as caught:
        compose_config([f"resume={run}", "trainer.lr=0.1"])
    assert str(caught.value).endswith("(what may change: trainer.memory_limit_mb, trainer.micro_batch_tokens, ...; all in docs/resume.md)")
    with pytest.raises(UserError, match=r"all the same \(what may change: docs/resume.md\)$"):
        compose_config([f"resume={run}", "seed=3"])


@pytest.mark.parametrize(
    ("asked", "nearest"),
    [
        ("engine.page_size", ["engine.max_batch", "engine.kv_tokens", "engine.prefill_chunk"]),
        ("engine.sglang.dtype", ["engine.sglang.device", "engine.sglang.storage", "engine.sglang.kv"]),
        ("algo.group_size", ["algo.updates"]),
        ("model.hidden_size", []),
    ],
)
def test_the_likest_keys_are_of_the_same_part_and_three_at_most(asked: str, nearest: list[str]):
    assert nearest_changeable(asked, [key for key, _ in leaves(Config())]) == nearest


def test_the_list_in_the_docs_is_what_may_change():
    page = Path(__file__).parents[3] / "docs" / "resume.md"
    listed = page.read_text().partition("What may change:\n")[2].partition("\n\n")[0]
    assert tuple(re.findall(r"`([^`]+)`", listed)) == CHANGEABLE


def test_a_forced_key_changes_and_no_other(run: Path):
    asked = [f"resume={run}", "trainer.lr=0.1", "launch.force=[trainer.lr]"]
    assert compose_config(asked).trainer.lr == 0.1
    with pytest.raises(UserError, match="seed=2: cannot change on resume"):
        compose_config([*asked, "seed=2"])


@pytest.mark.parametrize("key", COUNTED)
def test_what_a_run_counts_in_stays_even_if_forced(run: Path, key: str):
    asked = [f"resume={run}", "launch.force=[algo]"]
    with pytest.raises(UserError, match=rf"{key}=6: cannot change on resume, not by launch.force either.*begin another run"):
        compose_config([*asked, f"{key}=6"])
    stored = dict(leaves(compose_config([f"resume={run}"])))[key]
    assert dict(leaves(compose_config([*asked, f"{key}={stored}"])))[key] == stored, "it may be named"


@pytest.mark.parametrize("key", SHAPES)
def test_the_shape_of_the_weights_stays_even_if_forced(run: Path, key: str):
    for force in ([], ["launch.force=[model]"]):
        with pytest.raises(UserError, match=rf"{key}=6: cannot change on resume, not by launch.force either.*shape; begin another run"):
            compose_config([f"resume={run}", *force, f"{key}=6"])


def test_a_group_of_the_configuration_changes_what_a_run_counts_in_as_little(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    mine = tmp_path / "here" / "conf" / "algo" / "mine.yaml"
    mine.parent.mkdir(parents=True)
    mine.write_text("groups_per_batch: 5\n")
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(UserError, match="algo.groups_per_batch=5: cannot change on resume, not by launch.force"):
        compose_config([f"resume={run}", "algo=mine", "launch.force=[algo]"])


def test_what_is_forced_is_checked_like_everything(run: Path):
    with pytest.raises(UserError, match="trainer.lr=-1"):
        compose_config([f"resume={run}", "trainer.lr=-1", "launch.force=[trainer.lr]"])
    with pytest.raises(UserError, match="scheduler.nosuch"):
        compose_config([f"resume={run}", "+scheduler.nosuch=1", "launch.force=[scheduler]"])


def test_a_group_stands_for_the_keys_that_its_file_sets(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    site = tmp_path / "here" / "conf" / "cluster" / "site.yaml"
    site.parent.mkdir(parents=True)
    site.write_text("kind: slurm\nslurm:\n  nodes: 3\n  options:\n    mail-type: END\n")
    monkeypatch.chdir(tmp_path / "here")
    config = compose_config([f"resume={run}", "cluster.slurm.time_min=7", "cluster=site", "network.interface=hostname"])
    assert config.cluster.kind is ClusterKind.slurm and config.cluster.cells == 5, "what the file leaves open stays as it was stored"
    assert config.cluster.slurm.options == {"mail-type": "END"} and (config.cluster.slurm.nodes, config.cluster.slurm.time_min) == (3, 7)


def test_a_group_with_keys_that_decide_the_numbers_is_refused_and_can_be_forced(run: Path):
    with pytest.raises(UserError, match=r"scheduler.mode='async_split': cannot change on resume"):
        compose_config([f"resume={run}", "scheduler=async"])
    assert compose_config([f"resume={run}", "scheduler=async", "launch.force=[scheduler]"]).scheduler.mode is SchedulerMode.async_split


def test_nothing_can_be_taken_away(run: Path):
    with pytest.raises(UserError, match="nothing can be taken away on resume"):
        compose_config([f"resume={run}", "~tracker"])


def test_a_group_that_is_not_there_is_bad_input(run: Path):
    with pytest.raises(UserError, match="cluster='nosuch'"):
        compose_config([f"resume={run}", "cluster=nosuch"])


def test_changes_name_both_values_and_whether_they_were_forced(run: Path):
    before = compose_config([f"resume={run}"])
    after = compose_config([f"resume={run}", "cluster.cells=3", "seed=4", "scheduler=async", "launch.force=[seed,scheduler.mode]"])
    assert changes(before, after) == (
        Change(key="seed", before=0, after=4, forced=True),
        Change(key="cluster.cells", before=5, after=3, forced=False),
        Change(key="scheduler.mode", before="colocate", after="async_split", forced=True),
    )
    assert changes(after, after) == ()
