"""What the supervisor's actions do: start and end the other processes of the run."""

from typing import Any

from gyre_hpc.machines.base import Received
from gyre_hpc.machines.call.actions import Leaving
from gyre_hpc.machines.supervision import (
    CheckAttempts,
    DumpStacks,
    EndRun,
    KillProcess,
    MirrorDirectory,
    ReadCommands,
    SpawnProcess,
    TerminateProcess,
    WriteAnswer,
)
from gyre_hpc.protocol.node_map import FIRST
from gyre_hpc.simulation.process import Process, Running


class SupervisorWorld:
    def __init__(self, process: Process) -> None:
        self.process, self.sim = process, process.sim
        self._running: dict[tuple[str, int], Running] = {}

    def handlers(self) -> dict[type, Any]:
        return {
            SpawnProcess: self._spawn, TerminateProcess: self._terminate, KillProcess: self._kill, MirrorDirectory: self._quick,
            CheckAttempts: self._check, EndRun: self._end, DumpStacks: self._dump, ReadCommands: self._read, WriteAnswer: self._answer,
        }  # fmt: skip

    def _quick(self, running: Running, action: Any) -> None:
        running.end_after(self.sim.kernel.short(0.005), lambda: None)

    def _dump(self, running: Running, action: DumpStacks) -> None:
        running.end_after(0.0005, lambda: ())

    def _read(self, running: Running, action: ReadCommands) -> None:
        running.end_after(0.0005, lambda: self.sim.people.read(self.process.attempt))

    def _answer(self, running: Running, action: WriteAnswer) -> None:
        running.end_after(self.sim.kernel.short(0.005), lambda: self.sim.people.answered(self.process, action))

    def _check(self, running: Running, action: CheckAttempts) -> None:
        running.end_after(0.005, lambda: self.sim.attempt)

    def _spawn(self, running: Running, action: SpawnProcess) -> None:
        if running.must_fail:
            running.end_after(0.01, lambda: None)
            return
        self._running[action.process, action.incarnation] = running
        child = self.sim.start_process(action.process, action.incarnation, self.process.attempt, self.process.name)
        child.on_death.append(lambda: self._ended(child))

    def _ended(self, child: Process) -> None:
        """The child is gone."""
        running = self._running.pop((child.name, child.incarnation), None)
        if running is not None:
            self.process.later(0.01, lambda: running.finish(child.exit_code))

    def _terminate(self, running: Running, action: TerminateProcess) -> None:
        child = self._child(action.process, action.incarnation)
        if child is not None and not running.must_fail:
            child.later(self.sim.kernel.short(0.1), lambda: self._end_in_order(child))
        running.end_after(0.0005, lambda: None)

    def _end_in_order(self, child: Process) -> None:
        """As processes/gateway.py: what came is handed to the journal."""
        if child.kind == "gateway" and child.machine is not None:
            child.tell(Received(child.name, Leaving()))
        self.sim.end_process(child, 0)

    def _kill(self, running: Running, action: KillProcess) -> None:
        child = self._child(action.process, action.incarnation)
        if child is not None:
            # What waits for a disk or a device is ended when that is over.
            self.sim.kernel.at(running.extra_s, lambda: self.sim.end_process(child, -9))
        running.end_after(0.0005, lambda: None)

    def _end(self, running: Running, action: EndRun) -> None:
        if self.process.name != FIRST:
            self.sim.nodes.ended(self.process, action.exit_code)
            return
        self.sim.supervisor_ended(self.process, action.exit_code, action.reason)

    def _child(self, name: str, incarnation: int) -> Process | None:
        child = self.sim.processes.get(name)
        return child if child is not None and child.alive and child.incarnation == incarnation else None
