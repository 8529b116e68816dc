"""Cells that send heartbeats and yet get nowhere: a role change or a micro-batch that never ends. Looked at with each tick."""

from gyre_hpc.machines.batch.fleet import Cell, Move
from gyre_hpc.machines.batch.state import State


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
