"""Whoever waits, waits for something that will end; and never do all cells wait for one another."""

from typing import TYPE_CHECKING, Any

from gyre_hpc.machines.call import GatewayMachine
from gyre_hpc.machines.call.live import CallState
from gyre_hpc.machines.cell import CellMachine
from gyre_hpc.machines.cell.steps import RETRY
from gyre_hpc.machines.cell.supply import FETCH_DEADLINE, FETCH_RETRY, PULL_DEADLINE, PULL_RETRY
from gyre_hpc.simulation.kernel import Violation
from gyre_hpc.simulation.process import Process

if TYPE_CHECKING:
    from gyre_hpc.simulation.run import Simulation

_LONGEST_S = 20.0
"""All cells may wait for another for so long: a commit of which one is lost ends sooner, by its deadline."""
_FOR_OTHERS = ("hand-ins of", "the other members", "generation", "the next generation")


class WaitTruth:
    def __init__(self, sim: "Simulation") -> None:
        self._sim = sim
        self._since: float | None = None
        """When all cells began to wait for another."""

    def at_rest(self, process: Process) -> None:
        """After the effects of an event were carried out."""
        machine: Any = process.machine
        if process.kind == "gateway":
            self._gateway(process, machine)
        elif process.kind == "cell":
            self._cell(process, machine)
            self._all_cells(machine)

    def _gateway(self, process: Process, machine: GatewayMachine) -> None:
        shard = machine._shard
        for live in shard.live.values():
            if live.state is CallState.sampling and live.attempt_key not in process.actions:
                raise Violation(f"{process.name}: {live.call} samples, and no engine works on it")
            if live.state is CallState.waiting and live.call not in shard.waiting:
                raise Violation(f"{process.name}: {live.call} waits for a cell, and nobody looks for one")
            bounded = live.state in (CallState.ended, CallState.suspended) or process.awaits(f"deadline/{live.call}")
            if not bounded:
                raise Violation(f"{process.name}: {live.call} is {live.state.value} without a deadline")

    def _cell(self, process: Process, machine: CellMachine) -> None:
        steps, supply, fetched = machine._steps, machine._supply, machine.state.fetched
        # A step that missed its deadline has no other: its controller sees it in every report.
        needed = ["heartbeat"]
        if steps.failed and steps.running is None:
            needed.append(RETRY)
        if supply._pulling is not None:
            needed.append(PULL_DEADLINE)
        elif supply._pull_trouble:
            needed.append(PULL_RETRY)
        if fetched.lease is not None:
            needed.append(FETCH_DEADLINE)
        elif fetched.trouble:
            needed.append(FETCH_RETRY)
        for timer in needed:
            if not process.awaits(timer):
                raise Violation(f"{process.name} waits, and its timer {timer} does not run")

    def _all_cells(self, machine: CellMachine) -> None:
        if not _waits_for_others(machine):
            self._since = None
            return
        others = [process.machine for process in self._sim.processes.values() if process.kind == "cell" and process.alive]
        if not all(isinstance(other, CellMachine) and _waits_for_others(other) for other in others):
            self._since = None
            return
        now = self._sim.kernel.now
        self._since = now if self._since is None else self._since
        if now - self._since > _LONGEST_S:
            raise Violation(f"every cell waits for another for {_LONGEST_S:g} s")


def _waits_for_others(machine: CellMachine) -> bool:
    return machine._steps.running is None and machine.state.waiting.startswith(_FOR_OTHERS)
