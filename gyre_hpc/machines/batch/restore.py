"""Records of earlier starts become state again: same attempt (executions go on) or a new one (they are restarted)."""

from functools import partial
from typing import Any

from gyre_hpc.machines.base import Effect, Note
from gyre_hpc.machines.batch.groups import GroupState
from gyre_hpc.machines.batch.intake import restart_execution
from gyre_hpc.machines.batch.records import (
    AttemptBegun,
    CommitIntended,
    Counted,
    EvaluationEnded,
    ExecutionEnded,
    ExecutionRestarted,
    FirstCalled,
    GroupBegun,
    LineageBegun,
    Published,
)
from gyre_hpc.machines.batch.state import State, new_batch, persist
from gyre_hpc.protocol.identity import ExecutionId


def restore(state: State, now: float, records: tuple[Any, ...]) -> list[Effect]:
    """Replay what was persisted; begin a new attempt if the newest record of that kind is an older one's."""
    attempt = 0
    for record in records:
        if isinstance(record, AttemptBegun):
            attempt = record.attempt
        else:
            _replay(state, now, record)
    state.progress_at = now
    if attempt == state.settings.attempt:
        state.looked_for_checkpoint = state.version is not None
        return [Note("controller_restarted", {"attempt": attempt, "update": state.update})]
    effects = persist(state, AttemptBegun(state.settings.attempt), _nothing)
    effects.append(Note("attempt_started", {"attempt": state.settings.attempt, "records": len(records)}))
    for execution in sorted(state.groups.live):
        new = str(ExecutionId.parse(execution).restarted())
        effects += persist(state, ExecutionRestarted(execution, new), partial(restart_execution, old=execution))
        state.add("executions_restarted")
    state.version = None
    return effects


def _nothing(state: State, now: float) -> list[Effect]:
    return []


def _replay(state: State, now: float, record: Any) -> None:
    groups = state.groups
    match record:
        case GroupBegun(group=id):
            groups.begin(id).durable = True
        case ExecutionRestarted(old=old):
            if groups.is_known(old):
                groups.restart(old)
        case ExecutionEnded(ended=ended):
            groups.end(ended)
        case FirstCalled(execution=execution, version=version):
            groups.first_call(execution, version)
        case CommitIntended(update=update):
            state.intents[update] = record
        case Published(version=version, update=update):
            _published(state, version, update)
        case LineageBegun(version=version):
            groups.unconsume_from(version.step)
            state.batch = new_batch(version.step)
        case Counted(totals=totals):
            state.totals = dict(totals)
        case EvaluationEnded(slot=slot, passed=passed, total=total):
            state.pass_rates[slot] = passed / total if total else 0.0
        case _:
            raise AssertionError(f"unknown record {record!r}")


def _published(state: State, version: Any, update: int) -> None:
    state.version = version
    state.batch = new_batch(version.step)
    intent = state.intents.get(update)
    if update >= 0 and intent is not None:
        for id in intent.groups:
            group = state.groups.groups[id]
            group.state, group.update = GroupState.consumed, update
