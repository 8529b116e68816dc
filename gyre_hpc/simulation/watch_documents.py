"""Numbers that only grow: documents, terms, fences, generations, versions; and records that are written once."""

from typing import Any

from gyre_hpc.machines.batch.records import ExecutionEnded, GroupBegun
from gyre_hpc.machines.batch.state import State
from gyre_hpc.machines.execution.records import Began, Finish
from gyre_hpc.protocol.supervision import Directory
from gyre_hpc.protocol.to_batch import CellReport
from gyre_hpc.protocol.to_cell import Order
from gyre_hpc.protocol.to_gateway import Table
from gyre_hpc.protocol.to_runner import Assignment, Begin
from gyre_hpc.simulation.kernel import Violation
from gyre_hpc.simulation.process import Process


class DocumentTruth:
    def __init__(self) -> None:
        self._newest: dict[tuple[Any, ...], Any] = {}
        self._once: set[tuple[Any, ...]] = set()
        self._numbers: dict[tuple[Process, str], tuple[int, int, int]] = {}
        """A cell's numbers as its controller had them last: they seldom change."""
        self._formed: dict[Process, tuple[Any, int]] = {}
        """(version, generation) of a controller, likewise."""

    def _grows(self, what: str, who: tuple[Any, ...], value: Any) -> None:
        key = (what, *who)
        known = self._newest.get(key)
        if known is not None and value < known:
            raise Violation(f"{what} of {who} falls from {known} to {value}")
        self._newest[key] = value

    def _only_once(self, what: str, *who: Any) -> None:
        key = (what, *who)
        if key in self._once:
            raise Violation(f"{what} twice: {who}")
        self._once.add(key)

    def sent(self, sender: Process, to: str, message: Any) -> None:
        who = (sender.attempt, to)
        match message:
            case Order():
                self._grows("order number", who, message.seq)
                self._grows("term", who, message.term)
                self._grows("fence", who, message.fence)
                if message.commit is not None:
                    self._grows("generation", (sender.attempt,), message.commit.generation)
                if message.version is not None and message.is_core:
                    self._grows("lineage ordered", who, message.version.lineage)
            case Table():
                self._grows("table number", who, message.number)
            case Assignment():
                self._grows("assignment number", who, message.number)
            case CellReport():
                self._grows("report number", (sender.name, sender.attempt), (message.incarnation, message.seq))
                self._grows("reported term", (sender.name, sender.attempt, sender.incarnation), message.term)
            case Directory():
                self._grows("directory number", who, message.number)

    def controller(self, process: Process, state: State) -> None:
        """After every event of the controller."""
        who = (process.attempt, process.incarnation)
        if self._formed.get(process) != (state.version, state.generation):
            self._formed[process] = (state.version, state.generation)
            if state.version is not None:
                self._grows("published version", who, state.version)
            self._grows("generation formed", who, state.generation)
        for cell in state.fleet.cells.values():
            numbers = (cell.term, cell.fence, cell.incarnation)
            known = self._numbers.get((process, cell.name))
            if known == numbers:
                continue
            if known is not None and cell.fence > known[1] and state.batch.ledger.accumulated(cell.name):
                raise Violation(f"{cell.name} is fenced off under {known[1]}, and what it accumulated counts as done")
            self._numbers[process, cell.name] = numbers
            self._grows("term decided", (*who, cell.name), cell.term)
            self._grows("fence decided", (*who, cell.name), cell.fence)
            self._grows("incarnation known", (*who, cell.name), cell.incarnation)

    def durable(self, process: Process, record: Any) -> None:
        match record:
            case GroupBegun(group=group):
                self._only_once("group begun", group)
            case ExecutionEnded(ended=ended):
                self._only_once("end recorded", ended.execution, ended.life)
            case Began(execution=execution, life=life):
                self._only_once("execution begun", execution, life)
            case Finish(ended=ended):
                self._only_once("execution ended", ended.execution, ended.life)

    def begins(self, begin: Begin) -> None:
        self._only_once("workspace made", begin.execution, begin.life)
