"""Who waits for what when a simulated run is judged: the first thing to read of a failing seed."""

from typing import TYPE_CHECKING

from gyre_hpc.machines.batch import BatchMachine
from gyre_hpc.machines.batch.status import waits_of
from gyre_hpc.machines.call import GatewayMachine
from gyre_hpc.machines.cell import CellMachine
from gyre_hpc.simulation.process import Process

if TYPE_CHECKING:
    from gyre_hpc.simulation.run import Simulation


def waits(sim: "Simulation") -> list[str]:
    """One line per process, several for the controller."""
    lines: list[str] = []
    for name, process in sorted(sim.processes.items()):
        lines += [f"{name}#{process.incarnation}: {line}" for line in _of(process, sim.kernel.now)]
    return lines


def _of(process: Process, now: float) -> list[str]:
    machine = process.machine
    if not process.alive or machine is None:
        return ["dead" if not process.alive else "not born"]
    under_way = sorted(f"{running.name}" for running in process.actions.values())
    tail = f" (actions {', '.join(under_way)})" if under_way else ""
    if process.paused:
        return ["paused"]
    if isinstance(machine, CellMachine):
        state, steps = machine.state, machine._steps
        body = f"{state.body.state.value}, term {state.order.term if state.order else None}, sum {state.total.update}/{state.total.fence}"
        trouble = steps.error or state.fetched.trouble
        return [f"{body} {state.total.ids}; waits for {steps.waiting or state.waiting}; trouble: {trouble}{tail}"]
    if isinstance(machine, GatewayMachine):
        shard = machine._shard
        return [f"{len(shard.live)} calls, {len(shard.waiting)} without a cell, full: {shard.journal.full!r}{tail}"]
    if isinstance(machine, BatchMachine):
        return _controller(machine, now, tail)
    return [f"alive{tail}"]


def _controller(machine: BatchMachine, now: float, tail: str) -> list[str]:
    state = machine.state
    head = f"{state.phase.value}, update {state.update}, version {state.version}, target {state.target}, live {sorted(state.groups.live)}{tail}"
    batch = (
        f"batch {[str(id) for id in state.batch.groups]} full {state.batch.full} ({state.batch.reason}), accepted {state.batch.accepted}"
    )
    entries = ", ".join(f"{entry.id} {entry.state.value} {entry.cell}" for entry in state.batch.ledger.entries())
    decision = f"decision {state.decision.want if state.decision else None} {state.decision.reason if state.decision else ''}"
    cells = [
        f"{cell.name}#{cell.incarnation} {cell.role.value} {cell.move.value} term {cell.term} fence {cell.fence} hand_in {cell.hand_in} "
        f"lost {cell.lost!r} aside {cell.aside!r} report {cell.report.state.value if cell.report else None}"
        for cell in state.fleet.cells.values()
    ]
    return [head, batch, f"ledger {entries}", decision, *cells, *(str(wait) for wait in waits_of(state, now))]
