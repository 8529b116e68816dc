"""The order of one cell, as a pure function of what the batch machine knows."""

from gyre_hpc.machines.batch.commit import Commit
from gyre_hpc.machines.batch.fleet import Cell, Fleet, Move
from gyre_hpc.machines.batch.open_batch import OpenBatch
from gyre_hpc.machines.batch.settings import BatchSettings
from gyre_hpc.protocol.identity import Role, Version
from gyre_hpc.protocol.to_cell import ApplyOrder, FitOrder, Lease, Order


def order_of(
    cell: Cell,
    *,
    fleet: Fleet,
    settings: BatchSettings,
    batch: OpenBatch,
    commit: Commit | None,
    version: Version | None,
    checkpoint: str | None,
    apply: ApplyOrder | None,
    fit: FitOrder | None,
    save: bool = False,
    pull_from: tuple[str, ...] = (),
) -> Order:
    """Whole document; `seq` 0 stands for the number that is stamped at sending. pull_from: stores that have `version`."""
    is_core = cell is fleet.core
    role = cell.role
    is_there = version is not None and cell.has(version)
    leases = () if commit is not None or cell.move is Move.leaving else _leases(cell, settings, batch)
    # The core needs the optimizer's state too, which no snapshot has: it makes, loads or has a version.
    sources: tuple[str, ...] = ()
    if version is not None and not is_there and not is_core:
        sources = pull_from
        if not sources:
            version = cell.report.version if cell.report is not None else None
    return Order(
        seq=0,
        term=cell.term,
        role=role,
        version=version,
        sources=sources,
        checkpoint=checkpoint if is_core and version is not None and not is_there else None,
        is_core=is_core,
        update=batch.update,
        fence=cell.fence,
        leases=leases,
        hand_in_to=_core_store(fleet) if cell.hand_in and role is Role.rollout else None,
        accepted=tuple(batch.accepted) if is_core else (),
        commit=commit.order(cell.name) if commit is not None else None,
        apply=apply if is_core else None,
        fit=fit if is_core else None,
        save=save and is_core,
        kv=cell.kv if role is Role.train else None,
    )


def _leases(cell: Cell, settings: BatchSettings, batch: OpenBatch) -> tuple[Lease, ...]:
    leased = batch.ledger.leased(cell.name)
    if not leased:
        return ()
    return tuple(Lease(entry.id, f"{settings.controller_url}/micro_batches/{entry.id}", entry.num_tokens) for entry in leased)


def _core_store(fleet: Fleet) -> str | None:
    return fleet.core.report.snapshot_url if fleet.core.is_usable and fleet.core.report is not None else None
