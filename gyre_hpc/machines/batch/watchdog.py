"""Cells that send heartbeats and yet get nowhere: a role change or a micro-batch that never ends. Looked at with each tick."""

from gyre_hpc.machines.batch.fleet import Cell, Move
from gyre_hpc.machines.batch.state import State
from gyre_hpc.protocol.to_batch import CellState


def starts_late(state: State, cell: Cell, now: float) -> bool:
    """It should be there by now. A cell that has registered and waits for the first weights of the run is not late."""
    if not cell.incarnation or cell.lost or cell.aside:
        return False
    if cell.report is not None and cell.report.state is not CellState.starting:
        return False
    if cell.report is not None and cell is not state.fleet.core and state.version is None:
        cell.started_at = now
    return now - cell.started_at > state.settings.start_deadline_s


def hangs(state: State, cell: Cell, now: float) -> str:
    """Why this cell must be started again; empty while it need not."""
    settings = state.settings
    if not cell.is_usable:
        cell.moving_since = cell.working_since = None
        return ""
    cell.moving_since = None if cell.move is not Move.ordered else now if cell.moving_since is None else cell.moving_since
    if cell.moving_since is not None and now - cell.moving_since > settings.switch_deadline_s:
        return f"role change not done within {settings.switch_deadline_s:g} s"
    works = bool(state.batch.ledger.leased(cell.name))
    cell.working_since = None if not works else now if cell.working_since is None else cell.working_since
    if cell.working_since is not None and now - cell.working_since > settings.lease_deadline_s:
        return f"no leased micro-batch done within {settings.lease_deadline_s:g} s"
    return ""
