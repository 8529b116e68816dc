"""The one decision of the cell machine: which step comes next."""

from gyre_hpc.machines.cell.actions import Accumulate, Action, AppliedRecord, Apply, Fit, HandInSum, ZeroSum
from gyre_hpc.machines.cell.commit import Commit, missing, next_commit_step
from gyre_hpc.machines.cell.giving import next_giving
from gyre_hpc.machines.cell.outcome import save_now
from gyre_hpc.machines.cell.state import State
from gyre_hpc.machines.cell.switch import Wait, leave_rollout, must_fit, towards_rollout, towards_train
from gyre_hpc.protocol.identity import Role
from gyre_hpc.protocol.to_batch import CellState, CommitPhase
from gyre_hpc.protocol.to_cell import CommitOrder, Order

Wish = Action | AppliedRecord | Wait


def next_step(state: State, order: Order, now: float) -> Wish:
    """Called while no step runs. Settles at once what needs no action: a new fence of a sleeping trainer, a freeze."""
    if order.save and state.unsaved is not None and not state.pending:
        save_now(state, state.unsaved)
    if state.pending:
        return state.pending[0]
    if state.body.trainer is None and not state.total.stands_for(order):
        state.total.restart(order.update, order.fence)
    if order.role is Role.rollout:
        return _rollout(state, order, now)
    leaving = _leave_rollout(state, order, now)
    if leaving is not None:
        return leaving
    moving = towards_train(order, state.body, state.total, state.done, state.settings)
    if isinstance(moving, Wait) and moving.settled:
        return _train(state, order)
    return moving


def _leave_rollout(state: State, order: Order, now: float) -> Action | None:
    """KV is given away between the closed gate and the end of what is live: calls go on meanwhile, as full pages never change."""
    body, giving = state.body, state.giving
    if body.engine is not None and body.admission is None and not body.quiet:
        step = next_giving(giving, order.kv, state.figures.kv, state.settings, now)
        if step is not None:
            return step
    return leave_rollout(order, body, giving, state.figures.kv, state.settings)


def _rollout(state: State, order: Order, now: float) -> Wish:
    """A hand-in that keeps failing does not hold the role change up for ever: the sum is kept and handed in later."""
    state.commit = None
    if state.body.trainer is not None and _hand_in_is_due(state, order, now):
        return _hand_in(state, order)
    moving = towards_rollout(order, state.body, state.total, state.done, state.settings)
    if isinstance(moving, Wait) and state.total.must_hand_in(order):
        return _hand_in(state, order)
    return moving


def _hand_in_is_due(state: State, order: Order, now: float) -> bool:
    if not state.total.must_hand_in(order):
        return False
    return state.hand_in_since is None or now - state.hand_in_since < state.settings.hand_in_deadline_s


def _hand_in(state: State, order: Order) -> HandInSum:
    assert order.hand_in_to is not None
    hand_in = state.total.hand_in(state.settings.name)
    return HandInSum(url=order.hand_in_to, update=state.total.update, hand_in=hand_in, deadline_s=state.settings.hand_in_deadline_s)


def _train(state: State, order: Order) -> Wish:
    """The trainer is awake at the right version."""
    state.body.move(CellState.train)
    settings, total = state.settings, state.total
    if total.dirty or not total.stands_for(order):
        state.commit = None
        return ZeroSum(update=order.update, fence=order.fence, deadline_s=settings.switch_deadline_s)
    if order.fit is not None and must_fit(order, state.done):
        fit = order.fit
        return Fit(id=fit.id, urls=fit.urls, epochs=fit.epochs, version=fit.version, deadline_s=settings.fit_deadline_s)
    if total.must_hand_in(order):
        return _hand_in(state, order)
    if order.commit is not None and settings.name in order.commit.members:
        return _commit(state, order, order.commit)
    state.commit = None
    return _accumulate(state, order)


def _commit(state: State, order: Order, asked: CommitOrder) -> Wish:
    """Frozen from here on: no step runs, and none of training begins but those of the commit."""
    commit = state.commit
    if commit is None or asked.generation > commit.generation:
        commit = state.commit = Commit(generation=asked.generation)
    if asked.generation < commit.generation:
        return Wait(reason=f"generation {commit.generation} of the commit")
    step = next_commit_step(commit, order, asked, state.settings.name, state.figures.held, state.settings.reduce_deadline_s)
    if step is not None:
        return step
    return _apply(state, order, commit)


def _apply(state: State, order: Order, commit: Commit) -> Wish:
    """Idempotent by (update, manifest_hash): what was made is only reported again."""
    ask, made = order.apply, state.done.applied
    if commit.phase is CommitPhase.failed:
        return Wait(reason="the next generation of the commit")
    if ask is None or commit.phase is not CommitPhase.reduced:
        lacking = missing(order, state.figures.held)
        return Wait(reason=f"hand-ins of {', '.join(cell for cell, _ in lacking)}" if lacking else "the other members of the commit")
    if made is not None and made.update == ask.update and (made.manifest_hash == ask.manifest_hash or made.version == state.body.trainer):
        return Wait(reason="the next batch")
    if ask.update != state.total.update:
        return Wait(reason=f"an order for the update from {ask.update} (the sum is of {state.total.update})")
    return Apply(generation=commit.generation, ask=ask, deadline_s=state.settings.apply_deadline_s)


def _accumulate(state: State, order: Order) -> Wish:
    if state.total.closed:
        return Wait(reason=f"a new fence (the sum of {state.total.update}/{state.total.fence} is closed: {state.total.closed})")
    id = state.fetched.next_to_accumulate(order, state.total.begun)
    if id is not None:
        return Accumulate(id=id, deadline_s=state.settings.accumulate_deadline_s)
    if state.fetched.lease is not None:
        return Wait(reason=f"fetch of micro-batch {state.fetched.lease.id} ({state.settings.fetch_deadline_s:g} s)")
    return Wait(reason="leases")
