"""People at a simulated run: what they order, by file or by message too, and what must hold of it.

An order is carried out only in the attempt that it is for, its answer never changes, and a held cell is not started until it is released.
"""

from functools import partial
from typing import TYPE_CHECKING

from gyre_hpc.machines.base import Received
from gyre_hpc.machines.supervision.actions import WriteAnswer
from gyre_hpc.protocol.node_map import FIRST
from gyre_hpc.protocol.people import Answer, Command, CommandKind, Unreadable, Wish
from gyre_hpc.simulation.kernel import Violation
from gyre_hpc.simulation.process import Process
from gyre_hpc.simulation.scenario import Fault

if TYPE_CHECKING:
    from gyre_hpc.simulation.run import Simulation

UNREADABLE = "unreadable"
"""Among the kinds of orders: a file that holds none."""


class People:
    def __init__(self, sim: "Simulation") -> None:
        self._sim = sim
        self._wishes: dict[str, tuple[Wish | None, int]] = {}
        """Order -> what it says, and the attempt in which it was written."""
        self._files: dict[str, None] = {}
        """Without an answer, oldest first."""
        self._answers: dict[tuple[str, int], Answer] = {}
        self._held: set[tuple[str, int]] = set()

    def strike(self, fault: Fault) -> None:
        """`other`: which order; `share`: 0 for whatever attempt lives, n for the one that is n - 1 after this one."""
        if fault.other == UNREADABLE:
            self._write(None)
            return
        attempt = self._sim.attempt + int(fault.share) - 1 if fault.share else 0
        kind = CommandKind(fault.other)
        self._write(Wish(kind, attempt, fault.target))
        if kind is CommandKind.hold:
            self._sim.kernel.at(fault.for_s, partial(self._write, Wish(CommandKind.release, 0, fault.target)))

    def read(self, attempt: int) -> tuple[Command | Unreadable, ...]:
        """What lies there without an answer."""
        return tuple(self._document(id, attempt) for id in self._files)

    def answered(self, process: Process, action: WriteAnswer) -> None:
        """Raises Violation."""
        wish, written = self._wishes[action.id]
        answer = action.answer
        if self._answers.setdefault((action.id, process.attempt), answer) != answer:
            raise Violation(f"order {action.id} is answered anew: {answer.text!r}")
        if answer.is_done and (wish is None or process.attempt != (wish.attempt or written)):
            raise Violation(f"order {action.id} was not for attempt {process.attempt}, and was carried out: {answer.text!r}")
        self._files.pop(action.id, None)

    def carried_out(self, supervisor: Process, id: str) -> None:
        """It said so."""
        wish, _ = self._wishes[id]
        assert wish is not None
        held = (wish.process, supervisor.attempt)
        if wish.kind is CommandKind.hold:
            self._held.add(held)
        elif wish.kind is CommandKind.release:
            self._held.discard(held)
        elif wish.kind is CommandKind.stop and not self._sim.is_finishing:
            self._sim.noticed = supervisor

    def starts(self, name: str, attempt: int) -> None:
        if (name, attempt) in self._held:
            raise Violation(f"{name} is started although a person holds it")

    def _write(self, wish: Wish | None) -> None:
        id = f"{len(self._wishes)}-{wish.kind.value if wish else UNREADABLE}"
        self._wishes[id] = (wish, self._sim.attempt)
        self._files[id] = None
        supervisor = self._sim.processes[FIRST]
        if wish is not None and len(self._wishes) % 2:
            supervisor.tell(Received("gyre", self._document(id, supervisor.attempt)))

    def _document(self, id: str, attempt: int) -> Command | Unreadable:
        wish, written = self._wishes[id]
        return Unreadable(id, "no JSON") if wish is None else Command(id, wish, written < attempt)
