"""Executions whose process is gone through no fault of theirs: preemption, a lost node, a dead runner.

What they said is in the journal, so another life of the same execution goes on from it (decision 0019). One that cannot is begun anew under
another id, and what it sampled is lost; both are counted. Invariant: a life is durable before any runner is told of it.
"""

from functools import partial

from gyre_hpc.machines.base import Effect, Note
from gyre_hpc.machines.batch.records import ExecutionRestarted, LifeBegun
from gyre_hpc.machines.batch.state import State, persist
from gyre_hpc.protocol.identity import ExecutionId
from gyre_hpc.protocol.to_batch import CallReplayed, ExecutionTakenUp, ReplayDiverged


def can_go_on(state: State, execution: str) -> bool:
    """Another life of it may begin. An execution that has said nothing yet loses nothing and cannot have been the cause."""
    group = state.groups.of(execution)
    is_new = group is not None and execution not in group.first_versions
    return state.settings.replays and (is_new or state.groups.lives.get(execution, 0) + 1 < state.settings.max_lives)


def take_up(state: State, now: float, execution: str, reason: str) -> list[Effect]:
    """Its next life begins once that is durable; where none may, another try takes its place."""
    if not can_go_on(state, execution):
        # Its gateway closes it.
        state.recently_ended[execution] = now
        return try_again(state, execution)
    state.restarting.add(execution)
    record = LifeBegun(execution, state.groups.lives.get(execution, 0) + 1)
    return persist(state, record, partial(_begin_life, record=record, reason=reason))


def _begin_life(state: State, now: float, *, record: LifeBegun, reason: str) -> list[Effect]:
    execution = record.execution
    state.restarting.discard(execution)
    state.assignments.pop(execution, None)
    if execution not in state.groups.live:
        return []
    state.groups.begin_life(execution, record.life)
    state.spared_s.pop(execution, None)
    return [Note("life_begun", {"execution": execution, "life": record.life, "reason": reason})]


def try_again(state: State, old: str) -> list[Effect]:
    """Another try takes the place of `old` once that is durable."""
    state.add("executions_restarted")
    state.restarting.add(old)
    record = ExecutionRestarted(old, str(ExecutionId.parse(old).restarted()))
    return persist(state, record, partial(_restart, old=old))


def _restart(state: State, now: float, *, old: str) -> list[Effect]:
    state.restarting.discard(old)
    if not state.groups.is_known(old):
        return []
    new = state.groups.restart(old)
    state.spared_s.pop(old, None)
    return [Note("execution_restarted", {"execution": new, "instead_of": old})]


def take_replay_fact(state: State, fact: ExecutionTakenUp | CallReplayed | ReplayDiverged) -> None:
    """What a gateway says of a life that began: what was at stake, what of it was saved, where it went another way."""
    match fact:
        case ExecutionTakenUp(execution=execution, num_tokens=num_tokens, seconds=seconds):
            state.add("executions_replayed", num_tokens > 0)
            state.add("tokens_at_stake", num_tokens)
            state.add("time_at_stake_s", seconds)
            if state.groups.lives.get(execution) == fact.life:
                # Its tools take their time again, its calls do not: so agents have equal time.
                state.spared_s[execution] = seconds
        case CallReplayed(num_tokens=num_tokens, seconds=seconds):
            state.add("calls_replayed")
            state.add("tokens_saved", num_tokens)
            state.add("time_saved_s", seconds)
        case ReplayDiverged():
            state.add("replay_diverged")
