"""The batch machine after restarts and losses of weights: what the simulation found, each rule by itself."""

from dataclasses import replace

from gyre_hpc.machines.base import Effect, Finished, Note, Persist, Persisted, Send, Start
from gyre_hpc.machines.batch import BatchMachine
from gyre_hpc.machines.batch.actions import Checkpoint, FindCheckpoint
from gyre_hpc.machines.batch.consolidation import FIND_CHECKPOINT
from gyre_hpc.machines.batch.groups import GroupState
from gyre_hpc.machines.batch.orders import order_of
from gyre_hpc.machines.batch.records import (
    CommitIntended,
    ExecutionRestarted,
    LineageBegun,
    Published,
)
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.to_batch import CellState, RunnerReport, ScoreState
from gyre_hpc.protocol.to_cell import Order
from gyre_hpc.protocol.to_runner import Assignment
from gyre_hpc.protocol.train_groups import TrainGroups
from tests.fakes.batch_bench import CELLS, DONE, FIRST, GROUPS, HISTORY, ended, machine, report, tell


def test_another_try_decided_before_a_restart_is_begun_after_it() -> None:
    made, effects = machine(*HISTORY, ended("train-0-0-0", ScoreState.infra_error))
    assert ExecutionRestarted("train-0-0-0", "train-0-0-0-r1") in [e.record for e in effects if isinstance(e, Persist)]
    assert made.state.groups.groups[GROUPS[0]].state is GroupState.begun


def test_a_group_whose_member_runs_again_is_not_complete() -> None:
    failed = ended("train-0-0-0", ScoreState.infra_error)
    made, _ = machine(*HISTORY, failed, ExecutionRestarted("train-0-0-0", "train-0-0-0-r1"))
    group = made.state.groups.groups[GROUPS[0]]
    assert (group.state, group.ended, list(group.members)) == (GroupState.begun, {}, ["train-0-0-0-r1"])


def test_an_execution_of_an_earlier_attempt_is_never_assigned_under_its_old_name() -> None:
    made, _ = machine(*HISTORY, attempt=2)
    effects = tell(made, 0.1, RunnerReport("runner-0", 1, 1, -1, capacity=4))
    begun = [begin.execution for e in effects if isinstance(e, Send) and isinstance(e.message, Assignment) for begin in e.message.begin]
    assert begun == []


def test_what_a_checkpoint_consumed_stays_consumed_over_a_controller_restart() -> None:
    made, _ = machine(*HISTORY, *DONE, LineageBegun(Version(1, 1), ((GROUPS[0], 0), (GROUPS[1], 0))))
    states = [made.state.groups.groups[id].state for id in GROUPS]
    assert states == [GroupState.consumed, GroupState.consumed, GroupState.complete, GroupState.complete]


def test_an_unpublished_update_found_in_a_checkpoint_is_recorded_as_consumed() -> None:
    intent = CommitIntended(0, "hash", Version(0, 1), GROUPS[:2], 2)
    made, _ = machine(*HISTORY, *DONE, intent, attempt=2)
    consumed = TrainGroups.of(2, GROUPS[:2])
    found = Checkpoint(folder="checkpoints/0.1", version=Version(0, 1), update=0, consumed=consumed)
    effects = made.handle(1.0, Finished("find_checkpoint", found))
    records = [e.record for e in effects if isinstance(e, Persist) and isinstance(e.record, LineageBegun)]
    assert records == [LineageBegun(Version(1, 1), ((GROUPS[0], 0), (GROUPS[1], 0)))]


def test_nobody_hears_of_a_lineage_before_it_is_durable() -> None:
    made, effects = machine(*HISTORY, attempt=2)
    keys = {type(e.record): e.key for e in effects if isinstance(e, Persist)}
    for cell in CELLS:
        tell(made, 0.5, report(cell, 1, state=CellState.starting, snapshots=(), version=None))
    effects = made.handle(1.0, Finished("find_checkpoint", Checkpoint("checkpoints/0.1", Version(0, 1), 0)))
    assert not any(isinstance(e.message, Order) and e.message.version == Version(1, 1) for e in effects if isinstance(e, Send))
    keys |= {type(e.record): e.key for e in effects if isinstance(e, Persist)}
    effects = made.handle(1.1, Persisted(keys[LineageBegun]))
    assert any(isinstance(e.message, Order) and e.message.version == Version(1, 1) for e in effects if isinstance(e, Send))


def test_a_core_that_was_started_again_behind_our_back_is_brought_to_a_checkpoint() -> None:
    made, effects = machine(*HISTORY)
    assert not any(isinstance(e, Start) and isinstance(e.action, FindCheckpoint) for e in effects)
    effects = tell(made, 0.5, report("cell-0", 1, state=CellState.starting, incarnation=2, snapshots=(), version=None))
    assert any(isinstance(e, Start) and isinstance(e.action, FindCheckpoint) for e in effects)
    orders = [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, Order) and e.to == "cell-0"]
    assert all(order.version is None for order in orders), "the core would make this version from nothing"


def test_the_core_never_pulls_a_snapshot() -> None:
    made, _ = machine(*HISTORY)
    tell(made, 0.5, report("cell-1", 1))
    state = made.state
    core = state.fleet.core
    order = order_of(
        core,
        fleet=state.fleet,
        settings=state.settings,
        batch=state.batch,
        commit=None,
        version=FIRST,
        checkpoint=None,
        apply=None,
        fit=None,
    )
    assert order.sources == ()


def test_a_lost_core_without_a_checkpoint_begins_the_run_anew() -> None:
    made, _ = machine(*HISTORY, *DONE, CommitIntended(0, "hash", Version(0, 1), GROUPS[:2], 2), Published(Version(0, 1), 0))
    tell(made, 0.5, report("cell-0", 1, state=CellState.starting, incarnation=2, snapshots=(), version=None))
    effects = made.handle(1.0, Finished("find_checkpoint", None))
    assert [e.record for e in effects if isinstance(e, Persist)] == [LineageBegun(Version(1, 0))]
    assert all(group.state is GroupState.complete for group in made.state.groups.of_purpose("train"))


def resumed_without_checkpoint(before_publish: bool) -> tuple[BatchMachine, list[Effect]]:
    """Attempt 2 after an update was made and consumed half of the groups; no checkpoint is whole."""
    made_update = (CommitIntended(0, "m", Version(0, 1), GROUPS[:2], 2), Published(Version(0, 1), 0))
    made, _ = machine(*HISTORY, *DONE, *made_update, attempt=2, incarnation=1)
    made.state.settings = replace(made.state.settings, checkpoint_before_publish=before_publish)
    return made, made.handle(0.1, Finished(FIND_CHECKPOINT, None))


def test_a_run_whose_checkpoints_are_all_damaged_ends_with_the_reason_and_touches_nothing() -> None:
    made, effects = resumed_without_checkpoint(before_publish=True)
    assert made.state.finished and made.state.exit_code == 2 and "no checkpoint is whole" in made.state.reason
    assert [e.fields["reason"] for e in effects if isinstance(e, Note) and e.kind == "run_finished"] == [made.state.reason]
    assert made.state.target is None and made.state.loading is None


def test_a_run_killed_before_its_first_checkpoint_trains_all_of_it_again_in_another_lineage() -> None:
    made, effects = resumed_without_checkpoint(before_publish=False)
    assert [e.record for e in effects if isinstance(e, Persist)] == [LineageBegun(Version(1, 0))]
    assert not made.state.finished and made.state.update == 0
    assert {group.state for group in made.state.groups.of_purpose("train")} == {GroupState.complete}, "what the lost update consumed"
    assert "alarm" in [e.kind for e in effects if isinstance(e, Note)]
