"""Records of earlier starts become state again: same attempt (executions go on) or a new one (they are restarted)."""

from typing import Any

from gyre_hpc.machines.base import Effect, Note
from gyre_hpc.machines.batch.giving_up import count_end
from gyre_hpc.machines.batch.groups import GroupState
from gyre_hpc.machines.batch.intake import deserves_another_try, goes_on
from gyre_hpc.machines.batch.records import (
    AttemptBegun,
    CommitIntended,
    Counted,
    EvaluationEnded,
    ExecutionEnded,
    ExecutionRestarted,
    FirstCalled,
    GroupBegun,
    LifeBegun,
    LineageBegun,
    Published,
)
from gyre_hpc.machines.batch.state import State, new_batch, persist
from gyre_hpc.machines.batch.taking_up import take_up, try_again
from gyre_hpc.protocol.to_batch import Ended


def restore(state: State, now: float, records: tuple[Any, ...]) -> list[Effect]:
    """Replay what was persisted; begin a new attempt if the newest record of that kind is an older one's."""
    attempt = 0
    records = _that_count(records)
    failed: dict[str, Ended | None] = {}
    """Ended in a way that deserves another life or another try, or (None) ran in an earlier attempt; whether that was begun, a later
    record says."""
    for record in records:
        if isinstance(record, ExecutionEnded):
            count_end(state, record.ended)
        match record:
            case AttemptBegun():
                attempt = record.attempt
                state.fruitless.clear()
                failed = {execution: failed.get(execution) for execution in sorted(state.groups.live)}
            case ExecutionEnded(ended=ended) if goes_on(state, ended) or deserves_another_try(state, ended):
                failed[ended.execution] = ended
            case LifeBegun(execution=execution, life=life):
                failed.pop(execution, None)
                if state.groups.is_known(execution):
                    state.groups.begin_life(execution, life)
            case _:
                _replay(state, now, record)
    state.progress_at = now
    state.gateway_heard = dict.fromkeys(state.settings.gateways, now)
    if attempt == state.settings.attempt:
        effects: list[Effect] = [Note("controller_restarted", {"attempt": attempt, "update": state.update})]
        lost = [execution for execution in failed if execution in state.groups.live]
        state.unplaced = set(state.groups.live)
    else:
        effects = persist(state, AttemptBegun(state.settings.attempt, len(records)), _nothing)
        effects.append(Note("attempt_started", {"attempt": state.settings.attempt, "records": len(records)}))
        failed = {execution: failed.get(execution) for execution in sorted(state.groups.live)}
        lost = list(failed)
        state.version, state.looked_for_checkpoint = None, False
        # Whoever began it may have mended what was wrong.
        state.fruitless.clear()
    for execution in lost:
        how = failed[execution]
        is_ours = how is not None and not how.is_lost
        reason = how.reason if how is not None else "it ran in an earlier attempt"
        effects += try_again(state, execution) if is_ours else take_up(state, now, execution, reason)
    return effects


def _that_count(records: tuple[Any, ...]) -> tuple[Any, ...]:
    """Without what a controller that did not know that its attempt was over wrote behind the back of the next one."""
    counting: list[Any] = []
    for record in records:
        if isinstance(record, AttemptBegun) and record.known is not None:
            del counting[record.known :]
        counting.append(record)
    return tuple(counting)


def _nothing(state: State, now: float) -> list[Effect]:
    return []


def _replay(state: State, now: float, record: Any) -> None:
    groups = state.groups
    match record:
        case GroupBegun(group=id, floor=floor):
            groups.begin(id, floor).durable = True
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
        case LineageBegun(version=version, consumed=consumed):
            state.lineage, state.looked_for_checkpoint = version.lineage, False
            groups.unconsume_from(version.step)
            state.forget_intents_from(version.step)
            for id, update in consumed:
                groups.groups[id].state, groups.groups[id].update = GroupState.consumed, update
            state.batch = new_batch(version.step)
        case Counted(totals=totals):
            state.totals = dict(totals)
        case EvaluationEnded(slot=slot, passed=passed, total=total):
            state.pass_rates[slot] = passed / total if total else 0.0
        case _:
            raise AssertionError(f"unknown record {record!r}")


def _published(state: State, version: Any, update: int) -> None:
    state.version, state.looked_for_checkpoint = version, True
    state.lineage = max(state.lineage, version.lineage)
    state.batch = new_batch(version.step)
    intent = state.intents.get(update)
    if update >= 0 and intent is not None:
        state.fruitless.clear()
        for id in intent.groups:
            group = state.groups.groups[id]
            group.state, group.update = GroupState.consumed, update
