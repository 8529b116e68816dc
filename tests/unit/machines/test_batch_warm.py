"""First weights after restarts and failures: a version names one set of weights for good; what failed is not tried in a loop."""

from typing import Any

import pytest

from gyre_hpc.machines.base import Effect, Failed, Finished, Note, Start, TimerFired
from gyre_hpc.machines.batch import BatchMachine
from gyre_hpc.machines.batch.actions import Checkpoint, FindCheckpoint, FindWarmStart, PreparedGroup, PrepareGroup, PrepareWarm
from gyre_hpc.machines.batch.consolidation import FIND_CHECKPOINT
from gyre_hpc.machines.batch.groups import GroupState
from gyre_hpc.machines.batch.open_batch import OpenBatch
from gyre_hpc.machines.batch.phases import FIND_WARM, NOTHING_TO_FIT, PREPARE_WARM, RAW
from gyre_hpc.machines.batch.planning import PREPARE
from gyre_hpc.machines.batch.records import AttemptBegun, GroupBegun, Published
from gyre_hpc.machines.batch.trial import Phase
from gyre_hpc.protocol.identity import GroupId, Version
from gyre_hpc.protocol.to_batch import CellState
from tests.fakes.batch_bench import FIRST, GROUPS, HISTORY, ended, machine, report, tell, training

WARM = GroupId("warm", 0, 0)
CACHED = Checkpoint("checkpoints/0.0", FIRST, -1)


def begun(effects: list[Effect], kind: type) -> list[Any]:
    return [effect.action for effect in effects if isinstance(effect, Start) and isinstance(effect.action, kind)]


def without_checkpoint(*records: Any, **changed: Any) -> tuple[BatchMachine, list[Effect]]:
    """A run of one scripted execution that has no checkpoint yet."""
    made, _ = machine(*records, warm_executions=1, **changed)
    return made, made.handle(0.1, Finished(FIND_CHECKPOINT, None))


def collected() -> BatchMachine:
    """The scripted execution has ended."""
    made, _ = without_checkpoint(AttemptBegun(1), GroupBegun(WARM), ended(f"{WARM}-0"))
    assert begun(made.handle(0.2, TimerFired("tick")), PrepareWarm)
    return made


def test_a_new_run_looks_for_a_cached_warm_start_and_loads_it() -> None:
    made, effects = without_checkpoint(incarnation=1)
    assert begun(effects, FindWarmStart)
    made.handle(0.2, Finished(FIND_WARM, CACHED))
    assert (made.state.target, made.state.loading, made.state.phase) == (FIRST, CACHED, Phase.starting)


@pytest.mark.parametrize("attempt", [1, 2])
def test_a_run_that_began_to_fit_its_own_takes_no_cached_one_that_came_since(attempt: int) -> None:
    made, effects = without_checkpoint(AttemptBegun(1), GroupBegun(WARM), attempt=attempt)
    assert not begun(effects, FindWarmStart), "the core may have fitted them already, as 0.0"
    assert (made.state.target, made.state.phase) == (RAW, Phase.warm_collect)


def test_a_cached_one_that_cannot_be_read_is_told_and_fitted_again() -> None:
    made, _ = without_checkpoint()
    effects = made.handle(0.2, Failed(FIND_WARM, "OSError", "stale handle"))
    assert [e.fields["reason"] for e in effects if isinstance(e, Note) and e.kind == "alarm"] == ["stale handle"]
    assert (made.state.target, made.state.phase) == (RAW, Phase.warm_collect)


def test_a_core_that_is_lost_with_its_warm_start_and_all_checkpoints_ends_the_run() -> None:
    made, _ = machine(*HISTORY, Published(Version(0, 1), 0), warm_executions=1)
    tell(made, 0.5, report("cell-0", 1, state=CellState.starting, incarnation=2, snapshots=(), version=None))
    made.handle(1.0, Finished(FIND_CHECKPOINT, None))
    assert made.state.finished and made.state.exit_code == 2 and "no checkpoint of 0.1 or before is whole" in made.state.reason
    assert made.state.loading is None, "random weights under the name of trained ones"


def test_scripted_executions_that_left_nothing_end_the_run_with_that_reason() -> None:
    made = collected()
    made.handle(1.0, Finished(PREPARE_WARM, PreparedGroup((), 1, 0, 0)))
    assert made.state.exit_code == 1 and made.state.reason.startswith(NOTHING_TO_FIT)
    assert made.state.reason.endswith("most of them: scored, but without a token to train on (1 of 1)")


def test_a_failed_look_for_checkpoints_is_repeated_at_the_next_tick_and_not_at_once() -> None:
    made, effects = machine()
    assert begun(effects, FindCheckpoint)
    assert not begun(made.handle(0.1, Failed(FIND_CHECKPOINT, "OSError", "stale handle")), FindCheckpoint)
    assert not begun(tell(made, 0.1, report("cell-1", 1)), FindCheckpoint)
    assert len(begun(made.handle(0.2, TimerFired("tick")), FindCheckpoint)) == 1


def test_a_warm_start_whose_journal_is_not_complete_waits_for_the_next_tick() -> None:
    made = collected()
    assert not begun(made.handle(1.0, Failed(PREPARE_WARM, "JournalIncomplete", "")), PrepareWarm)
    assert len(begun(made.handle(1.1, TimerFired("tick")), PrepareWarm)) == 1


@pytest.mark.parametrize("kind", ["JournalIncomplete", "ValueError"])
def test_a_group_that_cannot_be_prepared_waits_for_the_next_tick(kind: str) -> None:
    made = training()
    made.state.groups.groups[GROUPS[0]].state = GroupState.chosen
    made.state.batch = OpenBatch(update=0, groups=[GROUPS[0]])
    made.state.running_actions.discard(PREPARE)
    assert begun(tell(made, 0.1, report("cell-1", 2)), PrepareGroup)
    effects = made.handle(0.2, Failed(PREPARE, kind, "x"))
    assert not begun(effects, PrepareGroup) and any(isinstance(e, Note) and e.kind == "alarm" for e in effects) == (kind == "ValueError")
    assert len(begun(made.handle(0.3, TimerFired("tick")), PrepareGroup)) == 1
