"""Carries out a scenario's faults: at their times, or at the moments they wait for."""

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from gyre_hpc.simulation.process import Process, Running
from gyre_hpc.simulation.scenario import Fault, FaultKind

if TYPE_CHECKING:
    from gyre_hpc.simulation.run import Simulation

_ARMED = (FaultKind.broken, FaultKind.stall, FaultKind.odd_rank)


class Faults:
    def __init__(self, sim: "Simulation", faults: tuple[Fault, ...]) -> None:
        self._sim = sim
        self.struck: Counter[str] = Counter()
        """Faults that happened, by kind."""
        self.calm_at = 0.0
        """When the last of those that happened is over."""
        self._aimed: dict[tuple[str, str], list[Fault]] = {}
        """(process, action and moment) -> what strikes then."""
        self._armed: dict[tuple[str, str], list[Fault]] = {}
        """(process, action) -> what befalls it."""
        self._seen: Counter[int] = Counter()
        for fault in faults:
            if fault.on:
                faults_of = self._armed if fault.kind in _ARMED else self._aimed
                faults_of.setdefault((fault.target, fault.on), []).append(fault)
            else:
                sim.kernel.at(fault.at, partial(self._strike, fault))

    def touch(self, process: Process, what: str) -> None:
        """`what` (`Apply:end`) happens in the process now."""
        for fault in self._aimed.get((process.name, what), ()):
            if self._is_due(fault):
                self._strike(fault)

    def begin(self, running: Running) -> None:
        """An action begins: it may be broken or slow, and its beginning may be a moment."""
        for fault in self._armed.get((running.process.name, running.name), ()):
            if self._is_due(fault):
                if fault.kind is FaultKind.broken:
                    running.must_fail = "after" if fault.share else "before"
                elif fault.kind is FaultKind.odd_rank:
                    running.odd_rank = "keeps" if fault.share else "deaf"
                else:
                    running.extra_s = fault.for_s
                self._count(fault, running.extra_s)
        self.touch(running.process, f"{running.name}:begin")

    def _is_due(self, fault: Fault) -> bool:
        if self._sim.kernel.now < fault.at:
            return False
        self._seen[id(fault)] += 1
        return self._seen[id(fault)] == fault.nth

    def _count(self, fault: Fault, for_s: float) -> None:
        self.struck[fault.kind.value] += 1
        self.calm_at = max(self.calm_at, self._sim.kernel.now + for_s)
        self._sim.kernel.say(f"!!! {fault}")

    def _strike(self, fault: Fault) -> None:
        sim, now = self._sim, self._sim.kernel.now
        if sim.is_finishing:
            return
        self._count(fault, fault.for_s)
        process = sim.processes.get(fault.target)
        match fault.kind:
            case FaultKind.crash:
                if process is not None:
                    sim.end_process(process, -9)
            case FaultKind.pause:
                if process is not None and process.alive:
                    process.paused = True
                    sim.kernel.at(fault.for_s, process.resume)
            case FaultKind.cut:
                sim.network.cut(fault.target, fault.other, now + fault.for_s)
            case FaultKind.storm:
                sim.network.storm(now + fault.for_s, fault.share)
            case FaultKind.disk_full:
                sim.disk.full_until[fault.target] = now + fault.for_s
            case FaultKind.disk_slow:
                sim.disk.slow_until[fault.target] = (now + fault.for_s, fault.share)
            case FaultKind.bad_start:
                starts = sim.hanging_starts if fault.for_s else sim.bad_starts
                starts[fault.target] += int(fault.share)
                if process is not None:
                    sim.end_process(process, -9)
            case FaultKind.rot:
                sim.kernel.at(sim.kernel.rng.uniform(0.0, fault.for_s), sim.rot)
            case FaultKind.node_off:
                sim.nodes.strike_off(fault)
            case FaultKind.node_cut:
                sim.network.cut_node(sim.node_of(fault.target), now + fault.for_s)
            case FaultKind.node_join:
                sim.nodes.strike_join(fault)
            case FaultKind.node_leave:
                sim.nodes.strike_leave(fault)
            case FaultKind.order:
                sim.people.strike(fault)
            case FaultKind.preempt:
                if fault.share:
                    sim.give_notice(fault.for_s)
                else:
                    sim.preempt(fault.target, fault.for_s)
