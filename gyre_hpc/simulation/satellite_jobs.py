"""SLURM as the controller asks it for satellites: jobs that wait and start some time, or never; refusals; no answer at all."""

from functools import partial
from typing import TYPE_CHECKING

from gyre_hpc.machines.batch.satellites import KeepSatellites, SatelliteJobs
from gyre_hpc.simulation.process import ActionFailed
from gyre_hpc.simulation.scenario import Fault, FaultKind

if TYPE_CHECKING:
    from gyre_hpc.simulation.run import Simulation

_NO_ANSWER, _REFUSED = 0.15, 0.25
_WAIT_S, _LIFE_S = (0.3, 8.0), (0.0, 4.0, 9.0)
"""A life of 0 lasts as long as the attempt."""


class Jobs:
    def __init__(self, sim: "Simulation") -> None:
        self._sim = sim
        self._waiting: list[str] = []
        self._started: list[str] = []
        self._submitted = 0

    def begin(self) -> None:
        """Of an attempt: jobs of an earlier one have nothing to join."""
        self._waiting.clear()
        self._started.clear()

    def keep(self, action: KeepSatellites) -> SatelliteJobs:
        """Raises ActionFailed."""
        dice, refused = self._sim.kernel.rng, ""
        if dice.random() < _NO_ANSWER:
            raise ActionFailed("SlurmError", "the SLURM controller does not answer")
        while self._waiting and len(self._waiting) + self._running() > action.wanted:
            self._waiting.pop()
        while not refused and len(self._waiting) + self._running() < action.wanted:
            if dice.random() < _REFUSED:
                refused = "the partition is down"
                continue
            self._submitted += 1
            name = f"supervisor-j{100 + self._submitted}n0"
            self._waiting.append(name)
            self._sim.kernel.at(dice.uniform(*_WAIT_S), partial(self._start, name))
        return SatelliteJobs(len(self._waiting), self._running(), refused)

    def _running(self) -> int:
        processes = (self._sim.processes.get(name) for name in self._started)
        return sum(process is not None and process.alive for process in processes)

    def _start(self, name: str) -> None:
        if name not in self._waiting or self._sim.is_finishing:
            return
        self._waiting.remove(name)
        self._started.append(name)
        for_s = self._sim.kernel.rng.choice(_LIFE_S)
        self._sim.nodes.strike_join(Fault(kind=FaultKind.node_join, target=name, share=1.0, for_s=for_s))
