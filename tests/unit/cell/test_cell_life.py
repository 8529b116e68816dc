"""Real cell processes: serve, train, commit alone, apply, serve the new version; nothing in the cell is rebuilt for it."""

from pathlib import Path

import pytest

from gyre_hpc.config.schema import ClusterConfig
from gyre_hpc.protocol.identity import GroupId, Role, Version
from gyre_hpc.protocol.to_batch import CellReport, CellState, CommitPhase
from gyre_hpc.protocol.to_cell import ApplyOrder, CommitOrder
from gyre_hpc.protocol.train_groups import TrainGroups
from gyre_hpc.train.checkpoint_folder import check, read_state
from tests.fakes.cell_stage import Stage, tiny_config

V0, V1 = Version(0, 0), Version(0, 1)
CONSUMED = TrainGroups.of(2, [GroupId("train", 0, 0)])
CORE = {"is_core": True, "version": V0, "update": 0}


def phase_is(phase: CommitPhase):
    return lambda report: report.commit is not None and report.commit.phase is phase


def state_is(state: CellState, term: int):
    return lambda report: report.state is state and report.term == term


@pytest.mark.parametrize(("ranks", "tensor_parallel", "groups"), [(1, 0, 0), (2, 0, 4), (2, 1, 2)])
def test_a_cell_serves_trains_commits_alone_and_serves_what_it_learned(tmp_path: Path, ranks: int, tensor_parallel: int, groups: int):
    """One rank; two that share a model, with a second group for their engine; two that train on a copy each."""
    config = tiny_config(cluster=ClusterConfig(cells=1, ranks_per_cell=ranks, tensor_parallel=tensor_parallel))
    with Stage(tmp_path, config) as stage:
        stage.start("cell-0")
        stage.wait_registered("cell-0")
        stage.order("cell-0", term=1, role=Role.rollout, **CORE)
        stage.until("cell-0", state_is(CellState.rollout, 1), "serving version 0.0")
        answer = stage.generate("cell-0")
        assert len(answer["output_ids"]) == 8 and answer["meta_info"]["weight_version"] == "0.0"
        before = stage.until("cell-0", lambda report: len(report.pids) == ranks, "a look at all ranks")
        assert before.groups_built == groups

        applied = train_one_update(stage)
        assert applied.version == V1 and applied.metrics["grad_norm"] > 0
        folder = stage.folder.checkpoints / "0.1"
        assert check(folder)["manifest_hash"] == "hash-0"
        assert read_state(folder)["consumed"] == CONSUMED.plain()

        stage.order("cell-0", term=3, role=Role.rollout, is_core=True, version=V1, update=1)
        back = stage.until("cell-0", state_is(CellState.rollout, 3), "serving version 0.1")
        assert stage.generate("cell-0")["meta_info"]["weight_version"] == "0.1"
        assert back.switch is not None and back.switch.direction == "train_to_rollout"
        assert list(back.switch.steps) == ["sleep_trainer", "wake_engine", "open_admission"]
        after = stage.until("cell-0", lambda report: report.pids, "pids")
        assert (after.pids, after.groups_built) == (before.pids, before.groups_built)
        assert [memory.rank for memory in after.memory] == list(range(ranks))


def train_one_update(stage: Stage):
    train = {"term": 2, "role": Role.train, **CORE}
    leases = stage.leases(V0, "0:0", "0:1")
    stage.order("cell-0", **train, leases=leases)
    report = stage.until("cell-0", lambda report: len(report.accumulated) == 2, "two micro-batches accumulated")
    assert [fact.num_targets for fact in report.accumulated] == [24, 24]
    assert report.switch is not None and list(report.switch.steps) == [
        "close_admission",
        "abort_live",
        "quiet_kv",
        "sleep_engine",
        "wake_trainer",
    ]
    commit = CommitOrder(1, ("cell-0",), nonce="n")
    stage.order("cell-0", **train, commit=commit)
    hosted = stage.until("cell-0", phase_is(CommitPhase.hosted), "hosted")
    assert hosted.commit is not None and hosted.commit.manifest == ("0:0", "0:1")
    commit = CommitOrder(1, ("cell-0",), hosted.commit.address, "n", True)
    stage.order("cell-0", **train, commit=commit)
    stage.until("cell-0", phase_is(CommitPhase.reduced), "reduced")
    apply = ApplyOrder(0, "hash-0", 6, V1, CONSUMED, {"slots": 1})
    stage.order("cell-0", **train, commit=commit, apply=apply)
    report = stage.until("cell-0", lambda report: report.applied is not None, "applied")
    stage.order("cell-0", **train, commit=commit, apply=apply)
    stage.until("cell-0", lambda report: report.order_seq == stage._seq, "the repeated order seen")
    assert stage.report("cell-0").applied == report.applied
    return report.applied


def test_requests_are_refused_while_the_cell_trains(tmp_path: Path):
    with Stage(tmp_path, tiny_config(cluster=ClusterConfig(cells=1))) as stage:
        stage.start("cell-0")
        stage.wait_registered("cell-0")
        stage.order("cell-0", term=1, role=Role.train, **CORE)
        report: CellReport = stage.until("cell-0", state_is(CellState.train, 1), "training")
        assert report.engine_url
        with pytest.raises(Exception, match="409"):
            stage.generate("cell-0")
