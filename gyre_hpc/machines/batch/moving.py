"""KV of a cell that leaves rollout: where it may go, and telling the gateways where it went."""

from gyre_hpc.machines.base import Effect
from gyre_hpc.machines.batch.fleet import Cell
from gyre_hpc.machines.batch.lending import to_move
from gyre_hpc.machines.batch.state import State
from gyre_hpc.protocol.to_batch import Moved
from gyre_hpc.protocol.to_cell import KvOrder, KvTarget
from gyre_hpc.scheduler.migration import may_take

_REMEMBER_MOVED_S = 15.0
"""Gateways are told of a move for this long: an agent that uses its tool for longer goes by load, and finds another cell."""


def kv_order(state: State, cell: Cell) -> KvOrder | None:
    """For the term in which `cell` leaves rollout; None: KV does not travel in this run."""
    if state.settings.kv_budget_s <= 0 or cell.report is None:
        return None
    following = _following(state, cell)
    targets = tuple(
        KvTarget(other.name, other.report.kv.free_tokens, other.report.live_requests)
        for other in state.fleet.cells.values()
        if other.report is not None
        and other is not cell
        and other.in_table
        and other not in following
        and other.report.version == cell.report.version
        and may_take(cell.name, cell.report.kv, other.report.kv)
        and other.report.kv.free_tokens > 0
    )
    return KvOrder(targets, tuple(sorted(state.groups.live)), state.settings.kv_budget_s)


def _following(state: State, cell: Cell) -> list[Cell]:
    """Cells that leave next, if the decision stands: KV that goes to them would have to move again at once."""
    num = state.decision.want - len(state.fleet.training_units()) if state.decision is not None else 0
    serving = [unit[0] for unit in state.fleet.serving_satellites() if cell not in unit]
    return sorted(serving, key=to_move)[: max(0, num)]


def take_moved(state: State, cell: Cell, now: float) -> list[Effect]:
    """Each list of moves once; a move of an execution that has ended is of no use to anybody."""
    moved = cell.report.moved if cell.report is not None else ()
    if moved == cell.moved:
        return []
    cell.moved = moved
    state.moved |= {one.call: (one.cell, now) for one in moved if _execution(one) in state.groups.live}
    return []


def recently_moved(state: State, now: float) -> tuple[tuple[str, str], ...]:
    """For the routing table: (call, cell)."""
    state.moved = {
        call: (cell, when)
        for call, (cell, when) in state.moved.items()
        if now - when < _REMEMBER_MOVED_S and call.rpartition("/")[0] in state.groups.live
    }
    return tuple(sorted((call, cell) for call, (cell, _) in state.moved.items()))


def _execution(moved: Moved) -> str:
    return moved.call.rpartition("/")[0]
