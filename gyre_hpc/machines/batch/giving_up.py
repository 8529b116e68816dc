"""A run that trains on nothing would make updates of nothing to its end and call that a success: it ends with the commonest reason instead.
So does one in which nobody is left to answer calls.

A row of executions without a token to train on ends it (fruit.py). An update whose batch holds no such token is never made: its executions are
begun anew, as the trouble may have passed, and the run ends after `most_empty_batches` of them in a row.
"""

from gyre_hpc.machines.base import Effect, Note
from gyre_hpc.machines.batch.fruit import commonest
from gyre_hpc.machines.batch.groups import GroupState
from gyre_hpc.machines.batch.phases import finish
from gyre_hpc.machines.batch.state import State, new_batch, void
from gyre_hpc.machines.batch.taking_up import try_again
from gyre_hpc.protocol.to_batch import Ended

NO_UNIT = "no pair of cells is whole, and none will be"
_ALARM_AT = 4
"""People are told after this part of the window."""


def count_end(state: State, ended: Ended) -> None:
    """Its end is durable. To be called before anything else follows from it."""
    if not state.settings.fruitless_window:
        return
    group = state.groups.of(ended.execution)
    has_sampled = group is not None and ended.execution in group.first_versions
    state.fruitless.take_end(ended, state.assignments.get(ended.execution, ""), has_sampled)


def watch_executions(state: State, now: float) -> list[Effect]:
    """With each tick: an alarm, later the end of the run."""
    window, row = state.settings.fruitless_window, state.fruitless
    if not window or len(row) < max(1, window // _ALARM_AT):
        return []
    effects: list[Effect] = []
    if not row.is_told:
        row.is_told = True
        effects.append(Note("alarm", {"what": f"{len(row)} executions in a row left no token to train on", "reason": row.reason}))
    if len(row) >= window and row.is_everywhere(state.assignments.values()):
        why = f"{len(row)} executions in a row left no token to train on (suite.fruitless_window={window}); most of them: {row.reason}"
        effects += finish(state, now, 1, why)
    return effects


def watch_units(state: State, now: float) -> list[Effect]:
    """With each tick: where every unit lacks a cell for good, nobody answers a call any more, and executions would wait for their deadlines
    one after the other. Only runs in pairs come to that: without its core a run has ended before."""
    units = state.fleet.units
    if not state.groups.live or state.settings.satellites or not all(any(cell.aside for cell in unit) for unit in units):
        return []
    aside = ", ".join(f"{cell.name} ({cell.aside})" for unit in units for cell in unit if cell.aside)
    return finish(state, now, 1, f"{NO_UNIT}; set aside: {aside}")


def begin_anew(state: State, now: float) -> list[Effect]:
    """The batch is complete and holds no token to train on: all its executions get another try. The core is frozen for our commit, so nothing
    that was intended before is applied any more."""
    groups = [state.groups.groups[id] for id in state.batch.groups]
    reason = commonest([ended for group in groups for ended in group.ended.values()])
    state.empty_batches += 1
    state.commit = None
    what = f"no execution of the batch of update {state.update} left a token to train on"
    if state.empty_batches >= state.settings.most_empty_batches:
        return finish(state, now, 1, f"{what}, {state.empty_batches} times in a row; most of them: {reason}")
    effects: list[Effect] = [Note("alarm", {"what": f"{what}: all are begun anew", "reason": reason})]
    effects += void(state, state.fleet.core, what)
    state.batch = new_batch(state.update)
    for group in groups:
        # Not to be chosen again until that is durable.
        group.state, group.update = GroupState.begun, -1
        for member in tuple(group.members):
            effects += try_again(state, member)
    return effects
