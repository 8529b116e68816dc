"""What a step changes when it begins, ends well, or fails."""

from typing import Any

from gyre_hpc.machines.cell.actions import (
    AbortLive,
    Accumulate,
    Action,
    AppliedRecord,
    Apply,
    CloseAdmission,
    Fit,
    HandInSum,
    HostGroup,
    InitModel,
    ListConversations,
    LoadCheckpoint,
    MoveKv,
    OpenAdmission,
    QuietKv,
    Reduce,
    SaveCheckpoint,
    SleepEngine,
    SleepTrainer,
    UpdateEngineWeights,
    WakeEngine,
    WakeTrainer,
    ZeroSum,
    step_name,
)
from gyre_hpc.machines.cell.state import State
from gyre_hpc.machines.cell.switch import Done
from gyre_hpc.protocol.to_batch import Applied, CellState, CommitPhase
from gyre_hpc.protocol.to_cell import ApplyOrder
from gyre_hpc.protocol.train_groups import TrainGroups

_MOVES: dict[type, CellState] = {
    CloseAdmission: CellState.draining,
    SleepEngine: CellState.switching,
    SleepTrainer: CellState.switching,
}


class StepRefused(Exception):
    """A step ended, but not with what it must: some rank did not acknowledge, some request is live."""


def begin(state: State, step: Action | AppliedRecord) -> None:
    if type(step) in _MOVES:
        state.body.move(_MOVES[type(step)])
    match step:
        case HandInSum() if state.body.trainer is not None:
            state.body.move(CellState.handing_in)
        case CloseAdmission():
            state.body.quiet = False
            state.giving.closes()
        case SleepEngine() if state.body.engine is not None:
            state.body.half_asleep = True
        case WakeEngine():
            state.body.half_asleep = True
        case WakeTrainer():
            state.body.half_awake = True
        case Accumulate(id=id):
            state.total.begun.add(id)
        case Reduce(accepted=accepted):
            assert state.commit is not None
            state.commit.phase, state.commit.accepted = CommitPhase.joined, accepted


def succeed(state: State, now: float, step: Action | AppliedRecord, result: Any) -> None:
    """Raises StepRefused when the result is not the acknowledgement that the step needs."""
    body, total = state.body, state.total
    match step:
        case CloseAdmission():
            body.admission = None
        case OpenAdmission(term=term):
            body.admission, body.quiet = term, False
            state.giving.moved = ()
            _arrive(state, now, CellState.rollout)
        case ListConversations():
            state.giving.listed = tuple(result)
        case MoveKv():
            state.giving.gave(result)
        case AbortLive():
            if result:
                raise StepRefused(f"{result} requests are still live")
            body.quiet = True
        case QuietKv():
            if result:
                raise StepRefused(f"other cells may still be at pages here: {result} leases or reservations are open")
            state.giving.is_counted = True
        case SleepEngine():
            _acknowledge(state, step, result)
            body.last, body.engine, body.half_asleep = body.engine or body.last, None, False
            body.above_limit = _above_limit(state)
            if body.above_limit:
                raise StepRefused(body.above_limit)
        case WakeEngine(version=version):
            _acknowledge(state, step, result)
            body.engine = body.last = version
            body.quiet, body.above_limit, body.half_asleep = True, "", False
        case UpdateEngineWeights(version=version):
            body.engine = body.last = version
        case SleepTrainer():
            _acknowledge(state, step, result)
            if body.half_awake and total.facts:
                total.spoil("the trainer's waking failed, and its sum with it")
            body.last, body.parked = body.trainer or body.last, body.trainer or body.parked
            body.trainer, body.half_awake = None, False
        case WakeTrainer(version=version, restore_sum=restored):
            _acknowledge(state, step, result)
            body.trainer = body.last = version
            body.half_awake = False
            total.woke(restored)
            _arrive(state, now, CellState.train)
        case LoadCheckpoint(version=version) | InitModel(version=version):
            body.store.add(version)
            state.saved, state.unsaved = version, None
        case ZeroSum(update=update, fence=fence):
            total.restart(update, fence)
        case Accumulate(id=id):
            total.add(result, state.fetched.ready.pop(id, result.num_targets), body.trainer)
        case HandInSum():
            total.mark_handed_in()
            state.hand_in_since = None
        case HostGroup():
            assert state.commit is not None
            state.commit.phase, state.commit.address = CommitPhase.hosted, result
        case Reduce():
            assert state.commit is not None
            state.commit.phase = CommitPhase.reduced
        case Apply():
            _applied(state, step.ask, result)
        case Fit():
            _fitted(state, step)
        case SaveCheckpoint(version=version):
            state.saved, state.unsaved = version, None
            del state.pending[0]
            if not state.pending and state.fitting:
                state.done, state.fitting = Done(applied=state.done.applied, fitted=state.fitting), ""
        case AppliedRecord():
            del state.pending[0]
            state.done = Done(applied=step.applied, fitted=state.done.fitted)


def fail(state: State, now: float, step: Action | AppliedRecord, reason: str) -> bool:
    """True: the same step is tried again by timer."""
    match step:
        case ListConversations() | MoveKv():
            state.giving.fails(reason)
            return False
        case Reduce() | HostGroup() | Apply():
            if state.commit is not None:
                state.commit.fail(reason)
            return False
        case Accumulate(id=id):
            state.fetched.ready.pop(id, None)
            state.total.spoil(f"micro-batch {id} failed: {reason}")
            return False
        case HandInSum():
            state.hand_in_since = now if state.hand_in_since is None else state.hand_in_since
    return True


def _acknowledge(state: State, step: Action, memory: Any) -> None:
    """Every rank must have said what memory it has now (faults.md C2)."""
    silent = sorted(set(range(state.settings.ranks)) - {figure.rank for figure in memory})
    if silent:
        raise StepRefused(f"no acknowledgement of rank {', '.join(map(str, silent))}")
    state.body.memory = tuple(sorted(memory, key=lambda figure: figure.rank))
    state.body.memory_after[step_name(step)] = state.body.memory


def _above_limit(state: State) -> str:
    """A rank that did not let go of its engine's memory would run out of it in the backward pass (faults.md C2)."""
    limit = state.settings.memory_limit
    above = [f"rank {one.rank} uses {one.used} bytes" for one in state.body.memory if one.used > limit > 0]
    return f"{', '.join(above)} while its engine sleeps; the limit is {limit} (trainer.memory_limit_mb)" if above else ""


def _arrive(state: State, now: float, role: CellState) -> None:
    state.body.move(role)
    if state.timing is None or state.order is None or state.order.role.value != role.value:
        return
    finished = state.timing.finished(state.order.term, role)
    state.switch = finished or state.switch
    state.timing = None


def _applied(state: State, ask: ApplyOrder, metrics: dict[str, float]) -> None:
    """The trainer has made the step. Saved if it must be, persisted, and only then reported."""
    state.body.trainer = state.body.last = ask.version
    state.body.store.add(ask.version)
    applied = Applied(update=ask.update, manifest_hash=ask.manifest_hash, version=ask.version, metrics=metrics)
    record = AppliedRecord(applied=applied, checkpoint=None)
    save = SaveCheckpoint(version=ask.version, state=checkpoint_state(ask, applied), deadline_s=state.settings.save_deadline_s)
    is_last = ask.is_last or (state.order is not None and state.order.save)
    state.unsaved = None
    if ask.version.step % state.settings.checkpoint_every and not is_last:
        state.pending, state.unsaved = [record], save
    elif state.settings.checkpoint_before_publish or is_last:
        state.pending = [save, AppliedRecord(applied=applied, checkpoint=str(ask.version))]
    else:
        state.pending = [record, save]


def save_now(state: State, unsaved: SaveCheckpoint) -> None:
    """What checkpoint_every passed over is saved after all."""
    assert state.done.applied is not None
    state.pending = [unsaved, AppliedRecord(applied=state.done.applied, checkpoint=str(unsaved.version))]


def checkpoint_state(ask: ApplyOrder, applied: Applied) -> dict[str, object]:
    """What a checkpoint says besides tensors (state.json, docs/formats.md)."""
    return {
        "version": str(applied.version),
        "update": applied.update,
        "manifest_hash": applied.manifest_hash,
        "num_executions": ask.num_executions,
        "consumed": ask.consumed.plain(),
        "counters": dict(ask.counters),
        "metrics": dict(applied.metrics),
    }


def _fitted(state: State, step: Fit) -> None:
    """Saved always: it cost the warm start's executions, and the cache copies it."""
    state.body.trainer = state.body.last = step.version
    state.body.store.add(step.version)
    state.fit_progress, state.fitting = 1.0, step.id
    fitted: dict[str, object] = {
        "version": str(step.version),
        "update": -1,
        "manifest_hash": "",
        "consumed": TrainGroups().plain(),
        "counters": {},
    }
    state.pending = [SaveCheckpoint(version=step.version, state=fitted, deadline_s=state.settings.save_deadline_s)]
