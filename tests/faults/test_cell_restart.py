"""A core from its warm start over a kill -9 to its next life: what it did stands, what it only held is gone."""

from pathlib import Path

import msgspec
import pytest

from gyre_hpc.config.schema import ClusterConfig
from gyre_hpc.machines.cell import CellMachine, CellSettings
from gyre_hpc.protocol import micro_batch
from gyre_hpc.protocol.identity import Role, Version
from gyre_hpc.protocol.to_batch import Applied, CellState, CommitPhase
from gyre_hpc.protocol.to_cell import ApplyOrder, CommitOrder, FitOrder
from gyre_hpc.shell.recorder import read_inputs
from gyre_hpc.train.checkpoint_folder import check
from tests.fakes.cell_stage import Stage, make_micro_batch, tiny_config

RAW, V0, V1, NEXT = Version(0, -1), Version(0, 0), Version(0, 1), Version(1, 1)


def warm_start(stage: Stage) -> None:
    one = msgspec.structs.replace(make_micro_batch("0:9", RAW), id="warm:0", loss="cross_entropy")
    stage.micro_batches["warm:0"] = micro_batch.encode(one)
    fit = FitOrder("warm", (f"{stage.url}/micro_batches/warm:0",), 2, V0)
    stage.order("cell-0", term=1, role=Role.train, is_core=True, version=RAW, update=0, fit=fit)
    report = stage.until("cell-0", lambda report: report.fitted == "warm", "a warm start")
    assert (report.version, report.fit_progress, report.state) == (V0, 1.0, CellState.train)
    assert check(stage.folder.checkpoints / "0.0")


def update(stage: Stage) -> Applied:
    train = {"term": 1, "role": Role.train, "is_core": True, "version": V0, "update": 0, "fence": 1}
    stage.order("cell-0", **train, leases=stage.leases(V0, "0:0"))
    stage.until("cell-0", lambda report: len(report.accumulated) == 1, "a micro-batch")
    commit = CommitOrder(1, ("cell-0",), "local", "n", True)
    stage.order("cell-0", **train, commit=commit)
    stage.until("cell-0", lambda report: report.commit is not None and report.commit.phase is CommitPhase.reduced, "reduced")
    stage.order("cell-0", **train, commit=commit, apply=ApplyOrder(0, "h", 3, V1))
    applied = stage.until("cell-0", lambda report: report.applied is not None, "applied").applied
    assert applied is not None
    return applied


@pytest.mark.timeout(240)
def test_a_killed_core_reports_its_applied_update_again_and_goes_on_from_the_checkpoint(tmp_path: Path):
    config = tiny_config(cluster=ClusterConfig(cells=1))
    config.debug.record_inputs = True
    with Stage(tmp_path, config) as stage:
        stage.start("cell-0")
        stage.wait_registered("cell-0")
        warm_start(stage)
        applied = update(stage)
        expect_replay(stage)
        stage.kill("cell-0")
        stage.start("cell-0", incarnation=1)
        stage.wait_registered("cell-0")
        report = stage.report("cell-0")
        assert (report.incarnation, report.applied, report.state) == (1, applied, CellState.starting)
        assert report.snapshots == () and report.accumulated == ()
        stage.order("cell-0", term=2, role=Role.rollout, is_core=True, version=NEXT, checkpoint="checkpoints/0.1", update=1)
        stage.until("cell-0", lambda report: report.state is CellState.rollout and report.version == NEXT, "serving the loaded version")
        assert stage.generate("cell-0")["meta_info"]["weight_version"] == "1.1"


def expect_replay(stage: Stage) -> None:
    """The shell adds nothing: a fresh machine, told the same, wants the same."""
    report = stage.report("cell-0")
    told = list(read_inputs(stage.folder.inputs("cell-0", 1)))
    assert len(told) > 20
    deadline_s = stage.config.transport.deadline_s
    settings = CellSettings(
        name="cell-0",
        incarnation=0,
        engine_url=report.engine_url,
        snapshot_url=report.snapshot_url,
        pull_deadline_s=deadline_s,
        reduce_deadline_s=deadline_s,
        hand_in_deadline_s=deadline_s,
    )
    machine = CellMachine(settings, stage.registered["cell-0"])
    for now, input, effects in told:
        assert machine.handle(now, input) == effects
