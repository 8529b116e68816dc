"""Cells that fell silent, and those that send heartbeats and yet get nowhere: a role change or a micro-batch that never ends, an engine that
does not work, weights that never arrive. Looked at with each tick."""

from gyre_hpc.machines.base import Effect, Note
from gyre_hpc.machines.batch.fleet import Cell, Move
from gyre_hpc.machines.batch.state import State
from gyre_hpc.protocol.to_batch import CellState


def is_silent(state: State, cell: Cell, now: float) -> bool:
    """It has reported, and does so no more."""
    return cell.report is not None and not cell.lost and not cell.aside and now - cell.heard_at > state.settings.silence_s


def starts_late(state: State, cell: Cell, now: float) -> str:
    """It should be there by now: why it is lost, with what it said of itself. A cell that has registered and waits for weights that nobody can
    give is not late."""
    if not cell.incarnation or cell.lost or cell.aside:
        return ""
    if cell.report is not None and cell.report.state is not CellState.starting:
        return ""
    if cell.report is not None and cell is not state.fleet.core and not _may_have_weights(state, cell):
        cell.started_at = now
    if now - cell.started_at <= state.settings.start_deadline_s:
        return ""
    late = f"not started within {state.settings.start_deadline_s:g} s"
    return f"{late}: {cell.report.error}" if cell.report is not None and cell.report.error else late


def _may_have_weights(state: State, cell: Cell) -> bool:
    """A satellite takes what the run serves from whoever has it."""
    version = state.version
    return version is not None and any(other.has(version) for other in (cell, *state.fleet.usable()))


def hangs(state: State, cell: Cell, now: float) -> str:
    """Why this cell must be started again; empty while it need not."""
    settings = state.settings
    if not cell.is_usable:
        cell.moving_since = cell.working_since = cell.broken_since = None
        return ""
    cell.moving_since = None if cell.move is not Move.ordered else now if cell.moving_since is None else cell.moving_since
    if cell.moving_since is not None and now - cell.moving_since > settings.switch_deadline_s:
        return f"role change not done within {settings.switch_deadline_s:g} s{_trouble(cell)}"
    works = bool(state.batch.ledger.leased(cell.name))
    cell.working_since = None if not works else now if cell.working_since is None else cell.working_since
    if cell.working_since is not None and now - cell.working_since > settings.lease_deadline_s:
        return f"no leased micro-batch done within {settings.lease_deadline_s:g} s{_trouble(cell)}"
    broken = cell.report.broken if cell.report is not None else ""
    cell.broken_since = None if not broken else now if cell.broken_since is None else cell.broken_since
    if cell.broken_since is not None and now - cell.broken_since > settings.broken_deadline_s:
        return f"it does not work for {settings.broken_deadline_s:g} s: {broken}"
    return ""


def watch_weights(state: State, cell: Cell, now: float) -> list[Effect]:
    """A cell that cannot get newer weights goes on with what it has, and so holds every new group back: an alarm, once each time."""
    if not _is_stale(state, cell):
        cell.stale_since, cell.stale_told = None, False
        return []
    cell.stale_since = now if cell.stale_since is None else cell.stale_since
    if cell.stale_told or now - cell.stale_since <= state.settings.stale_patience_s:
        return []
    cell.stale_told = True
    assert cell.report is not None
    what = f"a cell serves weights beyond the staleness bound of {state.settings.scheduler.max_staleness} (newest: {state.version})"
    reason = cell.report.error or cell.report.waiting
    return [Note("alarm", {"what": what, "cell": cell.name, "version": str(cell.report.version), "reason": reason})]


def _is_stale(state: State, cell: Cell) -> bool:
    report, newest = cell.report, state.version
    if not cell.is_serving or report is None or report.version is None or newest is None:
        return False
    return report.version.step < newest.step - state.settings.scheduler.max_staleness


def _trouble(cell: Cell) -> str:
    return f": {cell.report.error}" if cell.report is not None and cell.report.error else ""
