"""The batch machine when cells hang, spoil their sums or hand in late: what the simulation found, each rule by itself."""

import pytest

from gyre_hpc.machines.base import Failed, Finished, Persist, Send, TimerFired
from gyre_hpc.machines.batch.actions import Checkpoint, PreparedGroup
from gyre_hpc.machines.batch.fleet import Move
from gyre_hpc.machines.batch.groups import GroupState
from gyre_hpc.machines.batch.open_batch import OpenBatch
from gyre_hpc.machines.batch.planning import PREPARE, gate_closed, prepare, prepared
from gyre_hpc.machines.batch.records import (
    AttemptBegun,
    CommitIntended,
    LifeBegun,
    LineageBegun,
    Published,
)
from gyre_hpc.machines.batch.state import void
from gyre_hpc.machines.batch.trial import Phase
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.supervision import Directory, Entry, RestartCell
from gyre_hpc.protocol.to_batch import Applied, CellState
from tests.fakes.batch_bench import CELLS, DONE, FIRST, GROUPS, HISTORY, machine, report, tell, training


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


def test_executions_of_an_earlier_attempt_are_taken_up_by_whichever_controller_comes_to_it() -> None:
    _, effects = machine(*HISTORY, AttemptBegun(2), attempt=2)
    assert [e.record for e in effects if isinstance(e, Persist)] == [LifeBegun(f"{id}-0", 1) for id in GROUPS]


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


def test_cells_of_nodes_that_are_long_gone_are_forgotten_and_an_old_directory_brings_none_back() -> None:
    made = training()
    fleet, old = made.state.fleet, tuple(Entry(name, 1, name) for name in CELLS)
    tell(made, 1.0, Directory(1, (*old, Entry("cell-3", 1, "cell-3"), Entry("cell-4", 1, "cell-4"))))
    assert [cell.name for cell in fleet.satellites if cell.is_joiner] == ["cell-3", "cell-4"]
    tell(made, 2.0, Directory(2, (*old, Entry("cell-3", 1, "", "its node left", True), Entry("cell-4", 1, "cell-4"))))
    made.state.batch.ledger.lease("cell-4", 1)
    tell(made, 3.0, Directory(9, old))
    assert "cell-3" not in fleet.cells and "cell-3" not in made.state.urls and "cell-3" not in made.state.activities
    assert fleet.cells["cell-4"].aside and not made.state.batch.ledger.leased("cell-4"), "what was missed meanwhile: it is lost first"
    tell(made, 4.0, Directory(9, old))
    tell(made, 5.0, Directory(2, (*old, Entry("cell-4", 1, "cell-4"))))
    assert set(fleet.cells) == set(CELLS) and fleet.units == tuple((cell,) for cell in fleet.cells.values())
