"""Whose stacks tell why something of several parties is late: written shortly before its deadline ends it, while they still wait for
each other. Orders are repeated while it is late, the supervisor has each process write once; nothing is ended by them.
"""

from collections.abc import Iterator

from gyre_hpc.machines.base import Effect, Send
from gyre_hpc.machines.batch.fleet import Cell
from gyre_hpc.machines.batch.state import State
from gyre_hpc.protocol.supervision import WriteStacks

LATE = 0.8
"""Share of a deadline after which its parties are asked."""
_CONTROLLER = "controller"
Late = tuple[tuple[str, ...], str]
"""The parties, and the reason: what is late, and the step that one of them is in."""


def watch_late(state: State, now: float) -> list[Effect]:
    """With each tick."""
    if now - state.stacks_ordered_at < state.settings.resend_s:
        return []
    orders: list[Effect] = [Send("supervisor-0", WriteStacks(tuple(dict.fromkeys(names)), reason)) for names, reason in _late(state, now)]
    if orders:
        state.stacks_ordered_at = now
    return orders


def _late(state: State, now: float) -> Iterator[Late]:
    yield from _commit(state, now)
    for cell in state.fleet.cells.values():
        if cell.is_usable:
            yield from _move(state, cell, now)
            yield from _work(state, cell, now)
            yield from _weights(state, cell, now)


def _commit(state: State, now: float) -> Iterator[Late]:
    commit = state.commit
    if commit is None or commit.intent or not _is_late(commit.started_at, state.settings.commit_deadline_s, now):
        return
    core = state.fleet.core
    yield commit.members, f"update {state.update} is not reduced after {now - commit.started_at:.0f} s; {core.name} waits for {_step(core)}"


def _move(state: State, cell: Cell, now: float) -> Iterator[Late]:
    if cell.moving_since is None or not _is_late(cell.moving_since, state.settings.switch_deadline_s, now):
        return
    targets = tuple(target.cell for target in cell.kv.targets) if cell.kv is not None and _step(cell).startswith("move_kv") else ()
    yield (
        (cell.name, state.fleet.core_name, *targets),
        f"the role change of {cell.name} is not done after {now - cell.moving_since:.0f} s; it waits for {_step(cell)}",
    )


def _work(state: State, cell: Cell, now: float) -> Iterator[Late]:
    if cell.working_since is None or not _is_late(cell.working_since, state.settings.lease_deadline_s, now):
        return
    yield (
        (cell.name, _CONTROLLER),
        f"{cell.name} did no micro-batch for {now - cell.working_since:.0f} s; it waits for {_step(cell)}",
    )


def _weights(state: State, cell: Cell, now: float) -> Iterator[Late]:
    """It has no deadline but an alarm; those that could give them are concerned."""
    patience_s = state.settings.stale_patience_s
    if cell.stale_since is None or not patience_s < now - cell.stale_since < 2 * patience_s:
        return
    yield (
        (cell.name, state.fleet.core_name),
        f"{cell.name} lacks {state.version} after {now - cell.stale_since:.0f} s; it waits for {_step(cell)}",
    )


def _is_late(since: float, deadline_s: float, now: float) -> bool:
    return now - since > LATE * deadline_s


def _step(cell: Cell) -> str:
    report = cell.report
    return (report.waiting or report.error if report is not None else "") or "nothing that it told of"
