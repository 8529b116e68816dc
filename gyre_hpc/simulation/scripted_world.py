"""The scripted agents' engine of the warm start: a process that is nothing but an engine, always open."""

from typing import Any

from gyre_hpc.machines.batch.phases import RAW
from gyre_hpc.simulation.engine import Engine
from gyre_hpc.simulation.process import Process


class ScriptedWorld:
    def __init__(self, process: Process) -> None:
        self.process = process
        self.engine = Engine(process, 0.01)
        self.engine.term, self.engine.is_open = 0, True
        self.engine.wake(RAW)
        process.on_death.append(self._gone)

    def handlers(self) -> dict[type, Any]:
        return {}

    def _gone(self) -> None:
        for request in list(self.engine.live):
            request.is_over = True
            request.say(("error", ("CellLost", "connection reset")))
