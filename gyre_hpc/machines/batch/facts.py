"""Facts for the scheduler, as a pure function of what the batch machine knows."""

from gyre_hpc.machines.batch.commit import Commit
from gyre_hpc.machines.batch.fleet import Cell, Fleet, Move
from gyre_hpc.machines.batch.groups import Groups
from gyre_hpc.machines.batch.lending import Lending
from gyre_hpc.machines.batch.open_batch import OpenBatch
from gyre_hpc.machines.batch.settings import BatchSettings
from gyre_hpc.protocol.identity import Role
from gyre_hpc.scheduler.base import EngineCurve, Facts

_ENOUGH_POINTS = 3


def facts_of(
    now: float,
    *,
    settings: BatchSettings,
    fleet: Fleet,
    groups: Groups,
    batch: OpenBatch,
    commit: Commit | None,
    lending: Lending,
    evaluating: bool,
    gate_closed: bool,
) -> Facts:
    """What the scheduler sees now. Its cells are units: a pair counts as one."""
    training, usable = fleet.training_units(), fleet.usable()
    waiting, size = batch.ledger.waiting(), max(map(len, fleet.units))
    return Facts(
        now=now,
        cells=len(fleet.working_units()),
        training=len(training),
        core_training=any(fleet.core in unit for unit in training),
        core_usable=fleet.core.is_usable,
        live=len(groups.live),
        groups_per_batch=settings.groups_per_batch,
        groups_ready=len(batch.groups),
        batch_full=batch.full,
        batch_open=batch.ledger.is_open(),
        gate_closed=gate_closed,
        micro_batches_waiting=len(waiting),
        ready_work_s=sum(entry.num_tokens for entry in waiting) / (speed(usable, settings) * size),
        cells_busy_training=sum(any(_is_busy(cell, batch) for cell in unit) for unit in training),
        update_in_progress=commit is not None,
        # Cells of a unit switch one after the other.
        switch_s=lending.switch_s * size,
        pull_s=lending.pull_s * size,
        last_lend=lending.last_lend,
        kv_tokens_per_cell=settings.kv_tokens_per_cell,
        evaluating=evaluating,
        batches_done=batch.update,
        window_complete=gate_closed and not groups.live,
        curve=curve_of(usable, settings),
    )


def curve_of(usable: list[Cell], settings: BatchSettings) -> EngineCurve:
    """Mean of the cells' measured curves; the half-saturation model until enough of it is measured."""
    speeds: dict[float, list[float]] = {}
    for cell in (cell for cell in usable if not cell.prefills):
        for running, tokens_per_s in cell.report.curve if cell.report is not None else ():
            speeds.setdefault(running, []).append(tokens_per_s)
    half = settings.scheduler.concurrency_half
    if len(speeds) < _ENOUGH_POINTS:
        return EngineCurve(half=half)
    return EngineCurve(points=tuple((running, sum(seen) / len(seen)) for running, seen in sorted(speeds.items())), half=half)


def speed(usable: list[Cell], settings: BatchSettings) -> float:
    """Mean measured training speed of a cell, tokens/s."""
    measured = [cell.report.train_tokens_per_s for cell in usable if cell.report is not None and cell.report.train_tokens_per_s > 0]
    return sum(measured) / len(measured) if measured else settings.train_tokens_per_s


def _is_busy(cell: Cell, batch: OpenBatch) -> bool:
    """Inside a micro-batch, holding leases, or on its way into training."""
    on_its_way = cell.move is Move.leaving or (cell.move is Move.ordered and cell.role is Role.train)
    return on_its_way or bool(batch.ledger.leased(cell.name))
