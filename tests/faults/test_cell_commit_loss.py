"""A satellite lost in mid-commit: the core says so within the deadline, and the next generation gives the same gradient."""

import os
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from gyre_hpc.config.schema import ClusterConfig, TransportConfig
from gyre_hpc.protocol.identity import Role, Version
from gyre_hpc.protocol.to_batch import Applied, CommitPhase, CommitReport
from gyre_hpc.protocol.to_cell import ApplyOrder, CommitOrder
from tests.fakes.cell_stage import Stage, tiny_config
from tests.fakes.live_run import descendants

V0, V1 = Version(0, 0), Version(0, 1)
TWO = ("cell-0", "cell-1")
IDS = ("0:0", "0:1", "0:2", "0:3")


def core_order(stage: Stage, **fields: object) -> None:
    stage.order("cell-0", **{"term": 1, "role": Role.train, "is_core": True, "version": V0, "update": 0, "fence": 1} | fields)


def satellite_order(stage: Stage, **fields: object) -> None:
    sources = (stage.report("cell-0").snapshot_url,)
    stage.order("cell-1", **{"term": 1, "role": Role.train, "version": V0, "sources": sources, "update": 0, "fence": 1} | fields)


def begin_commit(stage: Stage) -> CommitReport:
    """Both cells hold half of the batch and are frozen; the core hosts generation 1."""
    for cell in TWO:
        stage.start(cell)
    stage.wait_registered(*TWO)
    core_order(stage, leases=stage.leases(V0, *IDS[:2]))
    stage.until("cell-0", lambda report: len(report.accumulated) == 2, "the core's half")
    satellite_order(stage, leases=stage.leases(V0, *IDS[2:]))
    stage.until("cell-1", lambda report: len(report.accumulated) == 2, "the satellite's half")
    core_order(stage, commit=CommitOrder(1, TWO, nonce="secret"))
    satellite_order(stage, commit=CommitOrder(1, TWO, nonce="secret"))
    frozen = stage.until("cell-1", lambda report: report.commit is not None, "the satellite's manifest")
    hosted = stage.until("cell-0", lambda report: report.commit is not None and report.commit.address, "the core's address")
    assert frozen.commit is not None and hosted.commit is not None
    assert (hosted.commit.manifest, frozen.commit.manifest) == (IDS[:2], IDS[2:])
    return hosted.commit


def finish(stage: Stage, commit: CommitOrder) -> Applied:
    """The core reduces, applies and reports."""
    core_order(stage, commit=commit)
    stage.until("cell-0", lambda report: report.commit is not None and report.commit.phase is CommitPhase.reduced, "reduced")
    core_order(stage, commit=commit, apply=ApplyOrder(0, "h", 12, V1))
    applied = stage.until("cell-0", lambda report: report.applied is not None, "applied").applied
    assert applied is not None
    return applied


def gradient(stage: Stage, applied: Applied) -> torch.Tensor:
    """Up to a constant: the first moment after one step from zero, with the clipping undone."""
    moments = load_file(stage.folder.checkpoints / "0.1" / "optimizer.safetensors")
    first = torch.cat([tensor.flatten() for name, tensor in sorted(moments.items()) if name.startswith("exp_avg.")])
    return first / applied.metrics["clip_scale"]


def run_undisturbed(root: Path) -> torch.Tensor:
    with Stage(root, config()) as stage:
        hosted = begin_commit(stage)
        commit = CommitOrder(1, TWO, hosted.address, "secret", True)
        satellite_order(stage, commit=commit)
        applied = finish(stage, commit)
        phase = stage.until("cell-1", lambda report: report.commit is not None and report.commit.phase is CommitPhase.reduced, "joined")
        assert [fact.id for fact in phase.accumulated] == list(IDS[2:]), "nobody's own sum is touched"
        return gradient(stage, applied)


def config():
    return tiny_config(cluster=ClusterConfig(cells=2), transport=TransportConfig(deadline_s=4.0))


@pytest.mark.timeout(240)
def test_a_satellite_killed_in_mid_commit_does_not_change_the_gradient(tmp_path: Path):
    expected = run_undisturbed(tmp_path / "undisturbed")
    with Stage(tmp_path / "disturbed", config()) as stage:
        hosted = begin_commit(stage)
        stuck = descendants(stage.processes["cell-1"].pid)
        for pid in stuck:
            os.kill(pid, signal.SIGSTOP)
        core_order(stage, commit=CommitOrder(1, TWO, hosted.address, "secret", True))
        stage.until("cell-0", lambda report: report.commit is not None and report.commit.phase is CommitPhase.joined, "the core waits")
        for pid in stuck:
            os.kill(pid, signal.SIGKILL)
        failed = stage.until(
            "cell-0", lambda report: report.commit is not None and report.commit.phase is CommitPhase.failed, "failure", within_s=20
        )
        assert failed.commit is not None and "rank 1" in failed.commit.reason
        assert [fact.id for fact in failed.accumulated] == list(IDS[:2]), "the core's sum is whole"
        core_order(stage, leases=stage.leases(V0, *IDS[2:]))
        stage.until("cell-0", lambda report: len(report.accumulated) == 4, "the rest of the batch on the core")
        alone = CommitOrder(2, ("cell-0",), nonce="other")
        core_order(stage, commit=alone)
        stage.until("cell-0", lambda report: report.commit is not None and report.commit.address, "hosted alone")
        got = gradient(stage, finish(stage, CommitOrder(2, ("cell-0",), stage.report("cell-0").commit.address, "other", True)))
    assert (got - expected).norm() / expected.norm() <= 1e-5


@pytest.mark.timeout(240)
def test_a_sum_handed_in_by_a_recalled_satellite_counts_as_if_it_had_stayed(tmp_path: Path):
    expected = run_undisturbed(tmp_path / "stayed")
    with Stage(tmp_path / "recalled", config()) as stage:
        begin_commit(stage)
        store = stage.report("cell-0").snapshot_url
        satellite_order(stage, term=2, role=Role.rollout, hand_in_to=store)
        back = stage.until("cell-1", lambda report: report.handed_in and report.state.value == "rollout", "handed in and serving")
        assert back.accumulated == ()
        held = stage.until("cell-0", lambda report: report.held, "the hand-in at the core")
        assert [(one.cell, one.fence, one.ids) for one in held.held] == [("cell-1", 1, IDS[2:])]
        accepted = (("cell-1", 1),)
        core_order(stage, accepted=accepted, commit=CommitOrder(2, ("cell-0",)))
        report = stage.until("cell-0", lambda report: report.commit is not None and report.commit.generation == 2, "generation 2")
        assert report.commit is not None and report.commit.manifest == IDS
        commit = CommitOrder(2, ("cell-0",), "local", "", True)
        core_order(stage, accepted=accepted, commit=commit)
        stage.until("cell-0", lambda report: report.commit is not None and report.commit.phase is CommitPhase.reduced, "reduced")
        core_order(stage, accepted=accepted, commit=commit, apply=ApplyOrder(0, "h", 12, V1))
        applied = stage.until("cell-0", lambda report: report.applied is not None, "applied").applied
        assert applied is not None
        got = gradient(stage, applied)
    assert (got - expected).norm() / expected.norm() <= 1e-5
