"""One scenario from its start to its end: the processes, what lies between them, and the judgement."""

import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from gyre_hpc.machines.base import Received, Restarted
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.supervision import FinishRun
from gyre_hpc.simulation.births import SUPERVISOR, bear
from gyre_hpc.simulation.disk import Disk, SavedCheckpoint
from gyre_hpc.simulation.faults import Faults
from gyre_hpc.simulation.groups import Groups
from gyre_hpc.simulation.kernel import Kernel, Violation
from gyre_hpc.simulation.network import Network
from gyre_hpc.simulation.nodes import Nodes
from gyre_hpc.simulation.people import People
from gyre_hpc.simulation.process import Process
from gyre_hpc.simulation.satellite_jobs import Jobs
from gyre_hpc.simulation.scenario import Scenario
from gyre_hpc.simulation.waits import waits
from gyre_hpc.simulation.watch import Watch
from gyre_hpc.simulation.weights import Weights

LIMIT_S = 900.0
LIMIT_EVENTS = 250_000
PATIENCE_S = 300.0
"""Longer than the progress deadline of the run, which names a reason."""
_START_S = 0.3
_PREEMPTED = 130


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one scenario."""

    scenario: Scenario
    violation: str = ""
    """Empty: everything held."""
    stack: str = ""
    waits: tuple[str, ...] = ()
    """Of a failing one: who waited for what."""
    events: int = 0
    seconds: float = 0.0
    """Simulated."""
    faults: dict[str, int] = {}
    """That struck, by kind."""
    sizes: dict[str, int] = {}
    """What there was of what MINIMA name."""
    counts: dict[str, int] = {}
    fingerprint: int = 0


class Simulation:
    """Use `run`."""

    def __init__(self, scenario: Scenario, trace: Callable[[str], None] | None = None) -> None:
        self.scenario = scenario
        self.kernel = Kernel(scenario.seed)
        self.kernel.print = trace
        self.disk = Disk()
        if scenario.warm_cached:
            fitted = {"update": -1, "manifest_hash": "", "consumed": [], "counters": {}}
            self.disk.warm_start = SavedCheckpoint(Version(0, 0), Weights("fit of another run"), fitted)
        self.network = Network(self)
        self.groups = Groups(self)
        self.watch = Watch(self)
        self.nodes = Nodes(self)
        self.people = People(self)
        self.jobs = Jobs(self)
        self.processes: dict[str, Process] = {}
        self.bad_starts: Counter[str] = Counter()
        self.hanging_starts: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.born: set[str] = set()
        self.survivors: dict[str, Process] = {}
        """Processes of earlier starts of the run that nobody has ended yet."""
        self.noticed: Process | None = None
        """The supervisor that was told that its allocation ends."""
        self.attempt = 0
        self._is_waiting = False
        """For its next allocation."""
        self.ended: tuple[int, str] | None = None
        self.is_finishing = False
        """The controller said that the run is over; faults have no point any more."""
        self.faults = Faults(self, scenario.faults)

    def run(self) -> Outcome:
        violation, stack = "", ""
        waiting: tuple[str, ...] = ()
        try:
            self._begin_attempt()
            self.kernel.run(self._is_over, LIMIT_S, LIMIT_EVENTS)
            self.watch.judge()
        except Exception as error:  # noqa: BLE001  (any bug of any machine is a finding with its seed)
            violation = str(error) if isinstance(error, Violation) else f"{type(error).__name__}: {error}"
            stack = traceback.format_exc()
            waiting = tuple(waits(self))
        return Outcome(
            scenario=self.scenario, violation=violation, stack=stack, events=self.kernel.num_events, seconds=self.kernel.now,
            faults=dict(self.faults.struck), sizes=self._sizes(), counts=dict(self.counts), fingerprint=self.kernel.fingerprint, waits=waiting,
        )  # fmt: skip

    def _sizes(self) -> dict[str, int]:
        kinds = Counter(name.partition("-")[0] for name in self.born)
        messages = sum(number for kind, number in self.faults.struck.items() if kind.startswith("message"))
        return {
            "cells": kinds["cell"], "shards": kinds["gateway"], "executions": self.counts["executions"], "updates": self.counts["applies"],
            "faults": sum(self.faults.struck.values()) - messages, "message faults": messages, "events": self.kernel.num_events,
        }  # fmt: skip

    def _is_over(self) -> bool:
        """Raises Violation when the run goes on for long after the last fault was cured: nobody may go in circles either."""
        if self.kernel.now - self.faults.calm_at > PATIENCE_S:
            raise Violation(f"the run is not over {PATIENCE_S:g} s after the last fault")
        return self.ended is not None

    def _begin_attempt(self) -> None:
        self.attempt, self._is_waiting = self.attempt + 1, False
        self.start_process(SUPERVISOR, 1, self.attempt)
        self.nodes.begin()
        self.jobs.begin()

    def node_of(self, name: str) -> str:
        """Supervisor of the node that a process is on."""
        process = self.processes.get(name)
        return process.node if process is not None else SUPERVISOR

    def preempt(self, survivor: str, for_s: float) -> None:
        """The allocation is lost, and comes back as another one. A survivor of it speaks to the new processes until they refuse it."""
        self.noticed = None
        for name, process in list(self.processes.items()):
            if name == survivor and process.alive:
                self.survivors[name] = process
                self.kernel.at(for_s, partial(self.end_process, process, -9))
            else:
                self.end_process(process, -9)
        if not self._is_waiting:
            self._is_waiting = True
            self.kernel.at(1.0, self._begin_attempt)

    def rot(self) -> None:
        """In the memory of the core."""
        core = self.processes.get("cell-0")
        if core is not None and core.alive and core.machine is not None:
            core.world.store.is_rotting = True

    def give_notice(self, for_s: float) -> None:
        """The allocation ends in `for_s`: its supervisor is told, and ends the run in good order if there is time."""
        supervisor = self.processes[SUPERVISOR]
        self.noticed = supervisor
        supervisor.tell(Received(SUPERVISOR, FinishRun(_PREEMPTED, "the allocation ends")))
        self.kernel.at(for_s, lambda: self.preempt("", 0.0) if self.noticed is supervisor else None)

    def supervisor_ended(self, process: Process, code: int, reason: str) -> None:
        """All its children are gone."""
        if process is not self.noticed:
            self.ended = (code, reason)
            return
        self.counts["ended_on_notice"] += 1
        self.preempt("", 0.0)

    def refused_as_over(self, sender: str) -> None:
        """A process of an earlier start hears that it is over."""
        process = self.survivors.pop(sender, None)
        if process is not None:
            self.counts["refused_as_over"] += 1
            process.later(self.kernel.short(0.3), partial(self.end_process, process, 1))

    def start_process(self, name: str, incarnation: int, attempt: int, node: str = SUPERVISOR) -> Process:
        """It is born after a while, unless it fails to start."""
        known = self.processes.get(name)
        if known is not None and known.alive and known.attempt == attempt:
            raise Violation(f"{name} is started again while its incarnation {known.incarnation} lives")
        self.people.starts(name, attempt)
        process = Process(self, name, incarnation, attempt, node)
        self.born.add(name)
        self.processes[name] = process
        if name != SUPERVISOR:
            process.addresses[SUPERVISOR] = f"{SUPERVISOR}#1"
        process.later(self.kernel.short(_START_S) if name != SUPERVISOR else 0.0, lambda: self._born(process))
        return process

    def _born(self, process: Process) -> None:
        if self.bad_starts[process.name] > 0:
            self.bad_starts[process.name] -= 1
            self.end_process(process, 1)
            return
        if self.hanging_starts[process.name] > 0:
            self.hanging_starts[process.name] -= 1
            return
        self.counts["starts"] += 1
        if process.incarnation > 1 or process.attempt > 1:
            self.faults.struck["restart"] += 1
        bear(self, process)
        process.tell(Restarted(self._records(process)))

    def _records(self, process: Process) -> tuple[Any, ...]:
        """As the shells: the controller reads the logs of all attempts, everybody else its own attempt's; a gateway has what earlier
        attempts recorded of its executions, too."""
        attempts = range(1, process.attempt + 1) if process.kind == "controller" else [process.attempt]
        own = tuple(record for attempt in attempts for record in self.disk.logs[process.name, attempt])
        if process.kind != "gateway":
            return own
        earlier = self.disk.earlier(process.name, process.attempt)
        self.watch.inherits(process, earlier)
        return (*earlier, *own)

    def end_process(self, process: Process, code: int) -> None:
        process.exit_code = code
        process.die()

    def durable(self, process: Process, record: Any) -> None:
        """A record reached the disk."""
        self.watch.durable(process, record)
        process.log.append(record)

    def save_checkpoint(self, version: Version, weights: Any, state: dict[str, Any], keep: int) -> None:
        self.watch.saved(version, weights, state)
        self.disk.checkpoints[f"checkpoints/{version}"] = SavedCheckpoint(version, weights, state)
        self.disk.prune(keep)

    def noted(self, process: Process, kind: str, fields: dict[str, Any]) -> None:
        self.counts[kind] += 1
        if kind == "command" and fields["is_done"]:
            self.people.carried_out(process, str(fields["id"]))
        if kind in ("node_lost", "node_left"):
            self.nodes.given_up(str(fields["node"]))
        if kind == "run_finished":
            self.is_finishing = True
            self.watch.finished(int(fields["exit_code"]), str(fields["reason"]))
