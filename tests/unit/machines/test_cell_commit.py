"""The cell machine in a commit: freeze, manifest, reduce, apply, and what a restart remembers."""

from gyre_hpc.machines.cell import CellSettings
from gyre_hpc.machines.cell.actions import AbortReduce, Accumulate, AppliedRecord, Apply, FetchMicroBatch, HostGroup, Reduce, SaveCheckpoint
from gyre_hpc.protocol.identity import GroupId, Role, Version
from gyre_hpc.protocol.to_batch import Applied, CellState, CommitPhase, HandIn
from gyre_hpc.protocol.to_cell import ApplyOrder, CommitOrder
from gyre_hpc.protocol.train_groups import TrainGroups
from tests.fakes.cell_driver import V0, V1, CellDriver, leases

TRAIN = {"term": 1, "role": Role.train, "version": V0, "update": 0, "is_core": True}
MEMBER = TRAIN | {"is_core": False, "sources": ("http://core",)}
TWO = ("cell-0", "cell-1")
CONSUMED = TrainGroups.of(2, [GroupId("train", 0, 0)])
APPLY = ApplyOrder(update=0, manifest_hash="h", num_executions=8, version=V1, consumed=CONSUMED, counters={"slots": 1})


def with_sum(base: dict = TRAIN, name: str = "cell-0", **settings: object) -> CellDriver:
    cell = CellDriver(CellSettings(name=name, incarnation=1, **settings))
    cell.order(**base, leases=leases("0:0", "0:1"))
    cell.settle()
    assert cell.report.state is CellState.train and len(cell.report.accumulated) == 2
    cell.ran.clear()
    return cell


def phase(cell: CellDriver) -> CommitPhase:
    assert cell.report.commit is not None
    return cell.report.commit.phase


def test_a_cell_freezes_after_the_micro_batch_in_progress_and_begins_no_other():
    cell = CellDriver(CellSettings(name="cell-1", incarnation=1))
    cell.order(**MEMBER)
    cell.settle()
    cell.order(**MEMBER, leases=leases("0:0", "0:1"))
    cell.finish(FetchMicroBatch)
    cell.finish(FetchMicroBatch)
    cell.order(**MEMBER, leases=leases("0:0", "0:1"), commit=CommitOrder(1, TWO))
    assert cell.report.commit is None and cell.is_running(Accumulate)
    cell.finish(Accumulate)
    assert phase(cell) is CommitPhase.frozen
    assert cell.report.commit is not None and cell.report.commit.manifest == ("0:0",)
    cell.settle()
    assert cell.report.commit.manifest == ("0:0",) and cell.ran.count("accumulate") == 1


def test_the_core_hosts_then_reduces_when_asked():
    cell = with_sum()
    cell.order(**TRAIN, commit=CommitOrder(1, TWO, nonce="n"))
    assert phase(cell) is CommitPhase.frozen and cell.is_running(HostGroup)
    cell.finish(HostGroup)
    assert phase(cell) is CommitPhase.hosted
    assert cell.report.commit is not None and cell.report.commit.address == "127.0.0.1:1"
    cell.order(**TRAIN, commit=CommitOrder(1, TWO, "127.0.0.1:1", "n"))
    assert not cell.is_running(Reduce), "manifests are not complete yet"
    cell.order(**TRAIN, commit=CommitOrder(1, TWO, "127.0.0.1:1", "n", True))
    assert phase(cell) is CommitPhase.joined
    reduce = cell.running[cell.key_of(Reduce)]
    assert isinstance(reduce, Reduce) and (reduce.rank, reduce.world, reduce.nonce) == (0, 2, "n")
    cell.finish(Reduce)
    assert phase(cell) is CommitPhase.reduced


def test_a_member_reduces_with_its_own_rank_and_keeps_its_sum():
    cell = with_sum(MEMBER, "cell-1")
    cell.order(**MEMBER, commit=CommitOrder(1, TWO, "a:1", "n", True))
    reduce = cell.running[cell.key_of(Reduce)]
    assert isinstance(reduce, Reduce) and reduce.rank == 1
    cell.settle()
    assert phase(cell) is CommitPhase.reduced and cell.body.total == ["0:0", "0:1"]


def test_a_failed_reduce_is_reported_and_the_next_generation_begins_at_frozen():
    cell = with_sum()
    cell.order(**TRAIN, commit=CommitOrder(1, TWO))
    cell.finish(HostGroup)
    cell.order(**TRAIN, commit=CommitOrder(1, TWO, "a:1", "n", True))
    cell.fail(Reduce, "cell-1 is gone")
    assert phase(cell) is CommitPhase.failed
    assert cell.report.commit is not None and "cell-1 is gone" in cell.report.commit.reason
    cell.settle()
    assert phase(cell) is CommitPhase.failed, "a generation is never tried twice"
    cell.order(**TRAIN, commit=CommitOrder(2, ("cell-0",)))
    cell.settle()
    assert phase(cell) is CommitPhase.hosted and cell.report.commit.manifest == ("0:0", "0:1")


def test_a_newer_generation_breaks_a_reduce_off():
    cell = with_sum()
    cell.order(**TRAIN, commit=CommitOrder(1, TWO))
    cell.finish(HostGroup)
    cell.order(**TRAIN, commit=CommitOrder(1, TWO, "a:1", "n", True))
    cell.order(**TRAIN, commit=CommitOrder(2, ("cell-0",)))
    cell.order(**TRAIN, commit=CommitOrder(2, ("cell-0",)))
    aborts = [action for action in cell.running.values() if isinstance(action, AbortReduce)]
    assert [abort.generation for abort in aborts] == [1]
    cell.fail(Reduce, "broken off")
    assert cell.report.commit is not None
    assert (cell.report.commit.generation, phase(cell)) == (2, CommitPhase.hosted)


def commit_alone(cell: CellDriver, **more: object) -> None:
    cell.order(**TRAIN, commit=CommitOrder(1, ("cell-0",), "local", "", True), **more)


def test_a_core_alone_commits_without_a_group_and_shows_the_same_phases():
    cell = with_sum()
    cell.order(**TRAIN, commit=CommitOrder(1, ("cell-0",)))
    assert phase(cell) is CommitPhase.hosted and cell.report.commit is not None and cell.report.commit.address == "local"
    commit_alone(cell)
    cell.settle()
    assert phase(cell) is CommitPhase.reduced and cell.ran == ["reduce"]


def test_accepted_hand_ins_are_in_the_manifest_and_the_reduce_waits_for_them():
    cell = with_sum()
    cell.order(**TRAIN, accepted=(("cell-2", 3),), commit=CommitOrder(1, ("cell-0",), "local", "", True))
    assert not cell.is_running(Reduce)
    assert "hand-ins of cell-2" in cell.machine.state.waiting
    cell.body.held = [HandIn("cell-2", 3, ("0:7",)), HandIn("cell-3", 1, ("0:8",))]
    cell.beat()
    assert cell.report.commit is not None and cell.report.commit.manifest == ("0:0", "0:1", "0:7")
    reduce = cell.running[cell.key_of(Reduce)]
    assert isinstance(reduce, Reduce) and reduce.accepted == (("cell-2", 3),)


def test_an_update_is_saved_then_persisted_then_reported():
    cell = with_sum()
    commit_alone(cell)
    cell.settle()
    commit_alone(cell, apply=APPLY)
    cell.finish(Apply)
    assert cell.is_running(SaveCheckpoint) and cell.report.applied is None
    save = cell.running[cell.key_of(SaveCheckpoint)]
    assert isinstance(save, SaveCheckpoint) and save.state["manifest_hash"] == "h" and save.state["consumed"] == CONSUMED.plain()
    cell.finish(SaveCheckpoint)
    assert cell.is_running(AppliedRecord) and cell.report.applied is None
    cell.finish(AppliedRecord)
    assert cell.report.applied == Applied(0, "h", V1, {"grad_norm": 1.0})
    assert cell.report.version == V1 and V1 in cell.report.snapshots


def test_a_repeated_apply_order_only_reports_again():
    cell = with_sum()
    for _ in range(3):
        commit_alone(cell, apply=APPLY)
        cell.settle()
    cell.order(**TRAIN, commit=CommitOrder(2, ("cell-0",), "local", "", True), apply=APPLY)
    cell.settle()
    assert cell.body.applied == [V1]
    assert cell.report.applied is not None and cell.report.version == V1


def test_a_full_disk_holds_the_report_back_and_does_not_repeat_the_step():
    cell = with_sum()
    commit_alone(cell, apply=APPLY)
    cell.finish(Reduce)
    cell.finish(Apply)
    cell.fail(SaveCheckpoint, "no space left", "StorageFull")
    assert "save_checkpoint: StorageFull" in cell.report.error and cell.report.applied is None
    cell.fire("step_retry")
    cell.finish(SaveCheckpoint)
    cell.fail(AppliedRecord, "no space left", "StorageFull")
    cell.fire("step_retry")
    cell.settle()
    assert cell.report.applied is not None and cell.body.applied == [V1]


def test_the_sum_is_zeroed_when_the_update_moves_on():
    cell = with_sum()
    commit_alone(cell, apply=APPLY)
    cell.settle()
    assert len(cell.report.accumulated) == 2
    cell.ran.clear()
    cell.order(**TRAIN | {"version": V1, "update": 1}, leases=leases("1:0"))
    cell.settle()
    assert cell.ran == ["zero_sum", "accumulate"], "the core's trainer is at the new version already"
    assert cell.report.commit is None and [fact.id for fact in cell.report.accumulated] == ["1:0"]


def test_without_checkpoint_before_publish_the_update_is_reported_before_it_is_saved():
    cell = with_sum(checkpoint_before_publish=False)
    commit_alone(cell, apply=APPLY)
    cell.finish(Reduce)
    cell.finish(Apply)
    assert cell.is_running(AppliedRecord)
    cell.finish(AppliedRecord)
    assert cell.report.applied is not None and cell.is_running(SaveCheckpoint)


def test_a_restarted_core_reports_only_updates_whose_checkpoint_exists():
    applied = Applied(3, "h", Version(0, 4))
    kept = CellDriver(records=(AppliedRecord(applied=applied, checkpoint="0.4"),))
    assert kept.report.applied == applied
    gone = CellDriver(records=(AppliedRecord(applied=applied, checkpoint=None),))
    assert gone.report.applied is None


def test_checkpoints_are_made_at_every_nth_version_only():
    cell = with_sum(checkpoint_every=2)
    commit_alone(cell, apply=APPLY)
    cell.settle()
    assert cell.body.checkpoints == set() and cell.persisted[-1].checkpoint is None


def test_recalled_in_mid_commit_the_cell_breaks_off_and_leaves():
    cell = with_sum(MEMBER, "cell-1")
    cell.order(**MEMBER, commit=CommitOrder(1, TWO, "a:1", "n", True))
    cell.order(**MEMBER | {"term": 2, "role": Role.rollout})
    assert cell.is_running(AbortReduce)
    cell.fail(Reduce, "broken off")
    cell.settle()
    assert cell.report.state is CellState.rollout and cell.report.commit is None


def test_an_order_older_than_the_update_does_not_cost_the_core_its_optimizer():
    cell = with_sum()
    commit_alone(cell, apply=APPLY)
    cell.settle()
    cell.order(**TRAIN | {"term": 2, "role": Role.rollout})
    cell.settle()
    assert cell.report.version == V0, "an update is published by the batch machine, not by the core"
    cell.order(**TRAIN | {"term": 3})
    cell.settle()
    assert (cell.report.state, cell.report.version) == (CellState.train, V1)
