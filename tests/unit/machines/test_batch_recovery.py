"""The batch machine after losses: what the simulation found, each rule by itself."""

from dataclasses import replace
from typing import Any

import pytest

from gyre_hpc.config.schema import SchedulerConfig
from gyre_hpc.machines.base import Effect, Failed, Finished, Note, Persist, Persisted, Received, Restarted, Send, Start, TimerFired
from gyre_hpc.machines.batch import BatchMachine, BatchSettings
from gyre_hpc.machines.batch.actions import Checkpoint, FindCheckpoint, PreparedGroup
from gyre_hpc.machines.batch.consolidation import FIND_CHECKPOINT
from gyre_hpc.machines.batch.fleet import Move
from gyre_hpc.machines.batch.groups import GroupState
from gyre_hpc.machines.batch.open_batch import OpenBatch
from gyre_hpc.machines.batch.orders import order_of
from gyre_hpc.machines.batch.planning import PREPARE, gate_closed, prepare, prepared
from gyre_hpc.machines.batch.records import (
    AttemptBegun,
    CommitIntended,
    ExecutionEnded,
    ExecutionRestarted,
    GroupBegun,
    LineageBegun,
    Published,
)
from gyre_hpc.machines.batch.state import void
from gyre_hpc.machines.batch.trial import Phase
from gyre_hpc.machines.membership import Membership
from gyre_hpc.protocol.identity import GroupId, Role, Version
from gyre_hpc.protocol.supervision import Directory, Entry, Register, RestartCell
from gyre_hpc.protocol.to_batch import Applied, CellReport, CellState, Ended, RunnerReport, ScoreState
from gyre_hpc.protocol.to_cell import Order
from gyre_hpc.protocol.to_runner import Assignment

CELLS = ("cell-0", "cell-1", "cell-2")
FIRST = Version(0, 0)
GROUPS = tuple(GroupId("train", slot, group) for slot in range(2) for group in range(2))


def machine(*records: Any, incarnation: int = 2, attempt: int = 1) -> tuple[BatchMachine, list[Effect]]:
    settings = BatchSettings(
        cells=CELLS, gateways=("gateway-0",), runners=("runner-0",), core="cell-0", controller_url="c", attempt=attempt,
        incarnation=incarnation, updates=3, groups_per_batch=2, group_size=1, scheduler=SchedulerConfig(), eval_tasks=0, eval_before=False,
        eval_after=False, switch_deadline_s=20.0, lease_deadline_s=20.0,
    )  # fmt: skip
    made = BatchMachine(settings, Membership(Register("controller", incarnation, "c", 1)), "secret")
    return made, made.handle(0.0, Restarted(tuple(records)))


def report(cell: str, seq: int, *, state: CellState = CellState.rollout, incarnation: int = 1, **facts: Any) -> CellReport:
    known: dict[str, Any] = {"snapshots": (FIRST,), "version": FIRST, "snapshot_url": f"store-{cell}", "engine_url": cell, "term": 0}
    return CellReport(cell=cell, incarnation=incarnation, seq=seq, order_seq=0, state=state, **(known | facts))


def tell(made: BatchMachine, now: float, message: Any, sender: str = "") -> list[Effect]:
    return made.handle(now, Received(sender, message))


def ended(execution: str, state: ScoreState = ScoreState.scored) -> ExecutionEnded:
    return ExecutionEnded(Ended(execution, state, 1.0 if state is ScoreState.scored else None))


HISTORY = (AttemptBegun(1), Published(FIRST, -1), *(GroupBegun(id) for id in GROUPS))
DONE = tuple(ended(f"{id}-0") for id in GROUPS)


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
    consumed = tuple(f"{id}-0" for id in GROUPS[:2])
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


def training() -> BatchMachine:
    """A batch of two groups, three cells awake as trainers."""
    made, _ = machine(*HISTORY, *DONE)
    state = made.state
    state.phase = Phase.training
    for cell in state.fleet.cells.values():
        cell.incarnation, cell.role, cell.move = 1, Role.train, Move.none
        seen = report(cell.name, 1, state=CellState.train, term=cell.term, update=0, fence=cell.fence)
        cell.report, cell.heard_at = seen, 0.0
    state.batch = OpenBatch(update=0)
    state.batch.ledger.add("0:0", 10, 10)
    state.batch.ledger.add("0:1", 10, 10)
    return made


def test_a_sum_that_a_cell_spoiled_is_voided_at_once() -> None:
    made = training()
    state, cell = made.state, made.state.fleet.cells["cell-1"]
    state.batch.ledger.lease("cell-1", 1)
    fence = cell.fence
    tell(made, 1.0, report("cell-1", 2, state=CellState.train, term=cell.term, update=0, fence=fence, spoiled="out of memory"))
    assert cell.fence > fence
    assert not state.batch.ledger.accumulated("cell-1")
    assert not state.batch.ledger.leased("cell-1"), "nothing is leased before the cell shows its new fence"


def test_what_was_handed_in_stays_when_its_giver_is_lost() -> None:
    made = training()
    batch, cell = made.state.batch, made.state.fleet.cells["cell-1"]
    batch.ledger.lease("cell-1", 1)
    batch.ledger.accumulate("cell-1", ["0:0"])
    assert batch.take_hand_in("cell-1", cell.fence, "cell-0", ("0:0",))
    void(made.state, cell, "killed")
    assert batch.accepted == [("cell-1", cell.fence - 1)]
    assert [entry.id for entry in batch.ledger.accumulated("cell-0")] == ["0:0"]


@pytest.mark.parametrize("hangs", ["switch", "lease"])
def test_a_cell_that_hangs_behind_its_heartbeats_is_started_again(hangs: str) -> None:
    made = training()
    cell = made.state.fleet.cells["cell-1"]
    if hangs == "switch":
        cell.move = Move.ordered
    else:
        made.state.batch.ledger.lease("cell-1", 1)
    restarts: list[str] = []
    for second in range(30):
        cell.heard_at = made.state.fleet.core.heard_at = made.state.fleet.cells["cell-2"].heard_at = float(second)
        effects = made.handle(float(second), TimerFired("tick"))
        restarts += [e.message.cell for e in effects if isinstance(e, Send) and isinstance(e.message, RestartCell)]
        if restarts:
            break
    assert restarts[:1] == ["cell-1"] and second >= 20


def test_a_preparation_of_a_batch_that_is_no_more_is_dropped() -> None:
    made = training()
    state = made.state
    state.batch = OpenBatch(update=0, groups=[GROUPS[0]])
    state.running_actions.discard(PREPARE)
    assert prepare(state, 1.0)
    state.version = Version(1, 0)
    effects = prepared(state, 2.0, Finished(PREPARE, PreparedGroup((), 1, 0, 0)))
    assert effects == [] and state.batch.prepared == {}


def test_a_cell_in_no_table_leaves_without_an_acknowledgement() -> None:
    made, _ = machine(*HISTORY)
    state = made.state
    cell = state.fleet.core
    tell(made, 0.1, Directory(1, tuple(Entry(name, 1, name) for name in CELLS)))
    cell.report = report("cell-0", 1, term=cell.term, version=Version(0, -1))
    cell.in_table = False
    decision = type("D", (), {"want": 1, "reason": "data", "forced": False})()
    state.lending.follow(1.0, decision, state.fleet, state.batch, 99)
    assert cell.move is Move.leaving and cell.left_table == 0


def test_a_failed_write_holds_back_what_comes_behind_it() -> None:
    made, effects = machine(attempt=1)
    key = next(e.key for e in effects if isinstance(e, Persist))
    made.handle(0.1, Failed(key, "StorageFull", "full"))
    effects = made.handle(1.0, TimerFired("tick"))
    assert [e.key for e in effects if isinstance(e, Persist)][:1] == [key]


def test_groups_of_another_batch_are_free_again_when_an_older_intent_turns_out_applied() -> None:
    intent = CommitIntended(0, "hash", Version(0, 1), GROUPS[2:], 2)
    made, _ = machine(*HISTORY, *DONE, intent)
    state = made.state
    state.phase = Phase.training
    tell(made, 0.5, report("cell-1", 1))
    assert state.batch.groups, "another batch was begun"
    applied = Applied(0, "hash", Version(0, 1))
    tell(made, 0.6, report("cell-0", 1, snapshots=(FIRST, Version(0, 1)), version=Version(0, 1), applied=applied))
    states = [state.groups.groups[id].state for id in GROUPS]
    assert states[2:] == [GroupState.consumed] * 2
    assert [id for id in GROUPS if state.groups.groups[id].state is GroupState.chosen] == state.batch.groups


def test_nothing_new_is_dispatched_against_weights_that_nobody_serves_yet() -> None:
    made, _ = machine(*HISTORY, *DONE[:2])
    state = made.state
    state.batch, state.loading = OpenBatch(update=1), Checkpoint("checkpoints/0.1", Version(0, 1), 0)
    assert not state.fleet.enter_table(FIRST)
    assert gate_closed(state), "four groups have begun, the cells serve step 0"


def test_executions_of_an_earlier_attempt_are_restarted_by_whichever_controller_comes_to_it() -> None:
    _, effects = machine(*HISTORY, AttemptBegun(2), attempt=2)
    assert {e.record.old for e in effects if isinstance(e, Persist)} == {f"{id}-0" for id in GROUPS}


def test_an_update_that_a_core_thought_lost_made_after_all_is_no_part_of_the_new_lineage() -> None:
    intent = CommitIntended(0, "hash", Version(0, 1), GROUPS[:2], 2)
    made, _ = machine(*HISTORY, *DONE, intent, LineageBegun(Version(1, 0)), Published(Version(1, 0), -1))
    made.state.phase = Phase.training
    applied = Applied(0, "hash", Version(0, 1))
    tell(made, 0.6, report("cell-0", 1, snapshots=(Version(1, 0),), version=Version(1, 0), applied=applied))
    assert made.state.version == Version(1, 0)


def test_the_last_evaluation_waits_for_the_last_weights() -> None:
    made, _ = machine(*HISTORY, *DONE)
    state = made.state
    state.phase, state.batch = Phase.training, OpenBatch(update=3)
    state.loading = Checkpoint("checkpoints/0.3", Version(0, 3), 2)
    made.handle(1.0, TimerFired("tick"))
    assert state.phase is Phase.training, "version 0.3 is on its way, the cells serve 0.0"


def test_updates_that_were_lost_during_the_last_evaluation_are_made_again() -> None:
    made, _ = machine(*HISTORY, *DONE)
    made.state.phase = Phase.eval_after
    made.handle(1.0, TimerFired("tick"))
    assert made.state.phase is Phase.training


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
