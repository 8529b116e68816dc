"""What leaves: orders, tables, assignments. Whole documents, sent at change and again until seen."""

from functools import partial
from typing import Any

import msgspec

from gyre_hpc.machines.base import Effect
from gyre_hpc.machines.batch.consolidation import apply_order
from gyre_hpc.machines.batch.documents import Document
from gyre_hpc.machines.batch.fleet import Cell
from gyre_hpc.machines.batch.groups import task_of
from gyre_hpc.machines.batch.lending import is_acknowledged
from gyre_hpc.machines.batch.moving import recently_moved
from gyre_hpc.machines.batch.orders import order_of
from gyre_hpc.machines.batch.phases import RAW, fit_order
from gyre_hpc.machines.batch.records import Published
from gyre_hpc.machines.batch.sources import choose_sources, holders_of
from gyre_hpc.machines.batch.state import State
from gyre_hpc.machines.batch.trial import Phase
from gyre_hpc.protocol.identity import Version, address
from gyre_hpc.protocol.to_cell import Order
from gyre_hpc.protocol.to_gateway import Row, Table
from gyre_hpc.protocol.to_runner import Assignment, Begin
from gyre_hpc.protocol.train_groups import TrainGroups

_REMEMBER_ENDED_S = 15.0
"""Gateways are told of an ended execution for this long; then its records are in the journal or never will be."""

_LEAST_SHARE = 0.25
"""Of its soft deadline an execution that was taken up has at least this."""


def send_all(state: State, now: float) -> list[Effect]:
    return send_tables(state, now) + send_orders(state, now) + send_assignments(state, now)


def send_orders(state: State, now: float) -> list[Effect]:
    effects: list[Effect] = []
    if any(isinstance(record, Published) for record, _ in state.pending.values()):
        # A controller that restarts without it would order cells back to older weights, under calls that went on with the new ones.
        return effects
    checkpoint = (state.loading.folder or None) if state.loading is not None and state.target is not None else None
    apply, fit = apply_order(state), fit_order(state)
    holders: dict[Version, dict[str, str]] = {}
    for turn, cell in enumerate(state.fleet.cells.values()):
        if cell.lost or cell.aside or cell.report is None:
            continue
        version = _version_for(state, cell)
        order = order_of(
            cell,
            fleet=state.fleet,
            settings=state.settings,
            batch=state.batch,
            commit=state.commit,
            version=version,
            checkpoint=checkpoint,
            apply=apply,
            fit=fit,
            save=state.is_saving,
            pull_from=_pull_from(state, cell, version, turn, holders),
        )
        effects += cell.order.update(now, order, _stamp_order, cell.report.order_seq, state.settings.resend_s)
    return effects


def _pull_from(state: State, cell: Cell, version: Version | None, turn: int, known: dict[Version, dict[str, str]]) -> tuple[str, ...]:
    """known: holders of versions, of this look at all cells."""
    if version is None or cell.has(version):
        cell.sources = ()
        return ()
    holders = known.get(version)
    if holders is None:
        holders = known[version] = holders_of(state.fleet, version)
    cell.sources = choose_sources(cell.sources, holders, state.fleet.core.name, turn)
    return tuple(holders[name] for name in cell.sources)


def _version_for(state: State, cell: Cell) -> Version | None:
    if cell is not state.fleet.core:
        return cell.report.version if _waits_for_partner(state, cell) and cell.report is not None else state.version
    if not state.looked_for_checkpoint or (state.loading is not None and state.target is None):
        return None
    if state.phase is Phase.warm_fit:
        return RAW
    return state.target or state.version


def _waits_for_partner(state: State, cell: Cell) -> bool:
    """Prompts of newer weights are computed first: else all calls of the cell, which go on from new prompts, would end."""
    partner = cell.partner
    if partner is None or cell.prefills or not (cell.is_serving and partner.is_serving):
        return False
    return partner.report is not None and partner.report.version != state.version


def _stamp_order(order: Order, number: int) -> Order:
    return msgspec.structs.replace(order, seq=number)


def rows_of(state: State) -> tuple[Row, ...]:
    """Cells that serve now; in the warm start the scripted agents."""
    if state.phase is Phase.warm_collect:
        url = state.urls.get(state.settings.warm_process)
        return (Row(state.settings.warm_process, url, 0, RAW, ("warm",)),) if url else ()
    return tuple(
        Row(cell.name, cell.report.engine_url, cell.term, cell.report.version, capacity=state.settings.cell_capacity)
        for cell in state.fleet.enter_table(state.version)
        if cell.report is not None and cell.report.version is not None and cell.report.engine_url
    )


def send_tables(state: State, now: float) -> list[Effect]:
    """One table number for all shards; each shard gets its own acknowledgements with it."""
    state.recently_ended = {id: ended for id, ended in state.recently_ended.items() if now - ended < _REMEMBER_ENDED_S}
    content = (rows_of(state), tuple(sorted(state.recently_ended)), recently_moved(state, now))
    if content != state.table_rows:
        state.table_rows = content
        state.table_number += 1
    table, settings = (state.table_number, state.table_rows), state.settings
    effects: list[Effect] = []
    for shard in settings.gateways:
        document = state.tables.get(shard)
        if document is None:
            document = state.tables[shard] = Document(shard, 0)
        acked, over = state.gateway_acked.get(shard, -1), state.groups.retired
        stamp = partial(_stamp_table, lease_s=settings.table_lease_s, acked=acked, over=over)
        seen = state.gateways[shard].table if shard in state.gateways else -1
        sent = document.update(now, table, stamp, document.number if seen >= state.table_number else -1, settings.resend_s)
        effects += sent or document.renew(now, stamp, settings.table_lease_s / 5)
    return effects


def _stamp_table(content: Any, number: int, *, lease_s: float, acked: int, over: TrainGroups) -> Table:
    rows, ended, moved = content[1]
    return Table(number=content[0], lease_s=lease_s, rows=rows, acked=acked, ended=ended, over=over, moved=moved)


def next_table(state: State) -> int:
    """Number of the table that will show the next change."""
    return state.table_number + 1


def is_known(state: State, now: float, table: int) -> bool:
    """Every gateway that may still go by an older table has this one."""
    settings = state.settings
    return is_acknowledged(table, settings.gateways, state.gateways, now, state.gateway_heard, settings.table_lease_s)


def send_assignments(state: State, now: float) -> list[Effect]:
    """Live executions are spread over the runners once and stay where they are."""
    _assign(state)
    effects: list[Effect] = []
    live, assigned, restarting = state.groups.live, state.assignments, state.restarting
    for runner, report in state.runners.items():
        wanted = sorted([one for one in live if assigned.get(one) == runner and one not in restarting])
        begin = tuple([_begin(state, execution) for execution in wanted])
        acked = tuple([address(ended.execution, ended.life) for ended in report.ended if not state.groups.is_awaited(ended)])
        document = state.assignment_documents.get(runner)
        if document is None:
            document = state.assignment_documents[runner] = Document(runner, state.settings.number_base)
        effects += document.update(now, (begin, acked), _stamp_assignment, report.assignment, state.settings.resend_s)
    return effects


def _stamp_assignment(content: Any, number: int) -> Assignment:
    return Assignment(number=number, begin=content[0], acked=content[1])


def _assign(state: State) -> None:
    if not state.runners:
        return
    load = {runner: 0 for runner in state.runners}
    for execution, runner in list(state.assignments.items()):
        if execution not in state.groups.live or runner not in load:
            del state.assignments[execution]
        else:
            load[runner] += 1
    for execution, id in state.groups.live.items():
        if execution not in state.assignments and execution not in state.unplaced and state.groups.groups[id].durable:
            runner = min(load, key=lambda name: (load[name] / max(1, state.runners[name].capacity), name))
            state.assignments[execution] = runner
            load[runner] += 1


def _begin(state: State, execution: str) -> Begin:
    group = state.groups.groups[state.groups.live[execution]]
    split, task = task_of(group.id, group.ordinal)
    soft_s, hard_s = state.settings.soft_deadline_s, state.settings.hard_deadline_s
    spared_s = min(state.spared_s.get(execution, 0.0), (1 - _LEAST_SHARE) * soft_s)
    return Begin(execution, split, task, soft_s - spared_s, hard_s - spared_s, state.groups.lives.get(execution, 0))
