"""The other nodes of a simulated run: what is on them, their power, their network, and nodes that nobody planned."""

from functools import partial
from typing import TYPE_CHECKING

from gyre_hpc.machines.base import Received
from gyre_hpc.machines.node import NodeMachine, NodeSettings
from gyre_hpc.protocol.node_map import FIRST
from gyre_hpc.protocol.supervision import FinishRun, NodeOffer
from gyre_hpc.simulation.kernel import Violation
from gyre_hpc.simulation.process import Process
from gyre_hpc.simulation.scenario import Fault, Scenario

if TYPE_CHECKING:
    from gyre_hpc.simulation.run import Simulation

SILENCE_S, GRACE_S, REPORT_S = 8.0, 3.0, 1.5
JOINER = "supervisor-j"


def nodes_of(scenario: Scenario) -> tuple[str, ...]:
    """Supervisors of the planned nodes beside the first one."""
    return tuple(f"supervisor-{index}" for index in range(1, scenario.nodes + 1))


def runners_of(scenario: Scenario) -> tuple[str, ...]:
    return tuple(f"runner-{index}" for index in range(scenario.nodes + 1))


def places_of(scenario: Scenario) -> dict[str, tuple[str, ...]]:
    """The core and its partner stay on the first node."""
    nodes = nodes_of(scenario)
    places: dict[str, tuple[str, ...]] = {f"runner-{index}": (name,) for index, name in enumerate(nodes, start=1)}
    if nodes:
        places |= {f"cell-{index}": (nodes[index % len(nodes)],) for index in range(2, scenario.cells)}
    return places


def node_machine(process: Process, joins: Fault | None) -> NodeMachine:
    """joins: the fault by which it came; None: it was planned."""
    settings = NodeSettings(
        name=process.name,
        life=f"{process.attempt}.{process.incarnation}",
        url=process.url,
        offer=NodeOffer(f"host-of-{process.name}", process.name, cells=int(joins.share) if joins else 0, kind=joins.other if joins else ""),
        report_s=REPORT_S,
        silence_s=SILENCE_S,
        grace_s=GRACE_S,
    )
    return NodeMachine(settings)


class Nodes:
    def __init__(self, sim: "Simulation") -> None:
        self._sim = sim
        self._lives: dict[str, int] = {}
        self.joined: dict[str, Fault] = {}
        """Joiner -> what it brings."""

    def begin(self) -> None:
        """Of an attempt."""
        self.joined.clear()
        for name in nodes_of(self._sim.scenario):
            self._start(name)

    def strike_off(self, fault: Fault) -> None:
        """Power-off; with `for_s` it comes back after that, with nothing on it."""
        node = self._sim.node_of(fault.target)
        self._power_off(node, self._sim.attempt)
        if fault.for_s:
            self._sim.kernel.at(fault.for_s, partial(self._back, node, self._sim.attempt))

    def strike_join(self, fault: Fault) -> None:
        """A node that nobody planned; with `for_s` it vanishes after that."""
        self.joined[fault.target] = fault
        self._start(fault.target)
        if fault.for_s:
            self._sim.kernel.at(fault.for_s, partial(self._power_off, fault.target, self._sim.attempt))

    def strike_leave(self, fault: Fault) -> None:
        """SIGTERM, as at the end of its own job."""
        supervisor = self._sim.processes.get(fault.target)
        if supervisor is not None and supervisor.alive and supervisor.machine is not None:
            supervisor.tell(Received(fault.target, FinishRun(0, "SIGTERM")))

    def ended(self, supervisor: Process, code: int) -> None:
        """A node's supervisor goes, and what is left of its children with it."""
        self._end_children(supervisor.name)
        self._sim.end_process(supervisor, code)

    def given_up(self, name: str) -> None:
        """Supervision goes on without the node. What was there must be gone by then: its executions begin anew elsewhere. Where the node's
        supervisor stands still nobody keeps its fence: others must refuse what is left there, as everything else that is checked says."""
        supervisor = self._sim.processes.get(name)
        if supervisor is not None and supervisor.paused:
            return
        alive = [one.name for one in self._of(name) if one.name != name]
        if alive:
            raise Violation(f"{name} was given up, and {alive} still live there")

    def _start(self, name: str) -> None:
        self._lives[name] = self._lives.get(name, 0) + 1
        self._sim.start_process(name, self._lives[name], self._sim.attempt, name)

    def _back(self, name: str, attempt: int) -> None:
        known = self._sim.processes.get(name)
        if attempt == self._sim.attempt and not self._sim.is_finishing and (known is None or not known.alive):
            self._start(name)

    def _power_off(self, name: str, attempt: int) -> None:
        if attempt == self._sim.attempt:
            for process in self._of(name):
                self._sim.end_process(process, -9)

    def _end_children(self, name: str) -> None:
        for process in self._of(name):
            if process.name != name:
                self._sim.end_process(process, -9)

    def _of(self, name: str) -> list[Process]:
        return [one for one in self._sim.processes.values() if one.node == name != FIRST and one.alive and one.attempt == self._sim.attempt]
