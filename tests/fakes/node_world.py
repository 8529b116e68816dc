"""Supervision and its nodes with a small world around them: messages that are lost, doubled and overtaken, processes that live and die."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from gyre_hpc.machines.base import CancelTimer, Finished, Input, Machine, Received, Restarted, Send, SetTimer, Start, TimerFired
from gyre_hpc.machines.node import NodeMachine, NodeSettings
from gyre_hpc.machines.supervision import (
    CheckAttempts,
    EndRun,
    KillProcess,
    MirrorDirectory,
    SpawnProcess,
    SupervisionMachine,
    SupervisionSettings,
    TerminateProcess,
)
from gyre_hpc.protocol.supervision import FinishRun, NodeOffer, NodeOrders, NodeReport, Register, RendezvousOpen, RestartCell

HOME = "supervisor-0"
MESSAGE_LIVES_S = 5.0
"""A post that took longer was given up by its sender."""
STEP_S = 1.0


@dataclass(kw_only=True)
class Supervisor:
    """One process that holds a machine, and its children."""

    name: str
    life: str
    machine: Machine
    timers: dict[str, float] = field(default_factory=dict)
    running: dict[tuple[str, int], str] = field(default_factory=dict)
    """(process, incarnation) -> key of the action that started it."""
    ended: EndRun | None = None
    alive: bool = True


class NodeWorld:
    """`supervisors` by name; the newest life of each."""

    def __init__(self, settings: SupervisionSettings) -> None:
        self.settings, self.now, self.num_lives = settings, 0.0, 0
        self.mail: list[tuple[float, str, str, Any]] = []
        """(sent at, sender, receiver, message)."""
        self.cut: set[str] = set()
        self.queue: deque[tuple[Supervisor, Input]] = deque()
        self.started: set[tuple[str, int, int]] = set()
        self.supervisors: dict[str, Supervisor] = {}
        self._put(Supervisor(name=HOME, life="", machine=SupervisionMachine(settings)))

    @property
    def home(self) -> Supervisor:
        return self.supervisors[HOME]

    def start_node(self, name: str, cells: int = 0) -> None:
        """A new life; what the one before had started is gone with it."""
        self.num_lives += 1
        life, offer = f"life-{self.num_lives}", NodeOffer(f"host-of-{name}", name, cells=cells)
        self._put(
            Supervisor(name=name, life=life, machine=NodeMachine(NodeSettings(name=name, life=life, url=f"{name}/{life}", offer=offer)))
        )

    def kill_node(self, name: str) -> None:
        """Power-off."""
        node = self.supervisors[name]
        node.alive = False
        node.running.clear()

    def _put(self, supervisor: Supervisor) -> None:
        self.supervisors[supervisor.name] = supervisor
        self.tell(supervisor, Restarted())

    def tell(self, to: Supervisor, told: Input) -> None:
        """One input after the other, as a host does: what an effect leads to comes after the other effects."""
        self.queue.append((to, told))
        if len(self.queue) > 1:
            return
        while self.queue:
            self._handle(*self.queue[0])
            self.queue.popleft()

    def _handle(self, to: Supervisor, told: Input) -> None:
        if not to.alive or to.ended is not None:
            return
        for effect in to.machine.handle(self.now, told):
            match effect:
                case Send(to=receiver, message=NodeOrders() | NodeReport() as message):
                    self.mail.append((self.now, to.name, receiver, message))
                case SetTimer(key=key, after_s=after_s):
                    to.timers[key] = self.now + after_s
                case CancelTimer(key=key):
                    to.timers.pop(key, None)
                case Start(key=key, action=action):
                    self._act(to, key, action)

    def _act(self, at: Supervisor, key: str, action: Any) -> None:
        match action:
            case SpawnProcess(process=process, incarnation=incarnation, part=part):
                assert (process, incarnation, part) not in self.started, f"{process}/{incarnation} was started twice"
                self.started.add((process, incarnation, part))
                at.running[process, incarnation] = key
                self.check()
            case TerminateProcess():
                self.tell(at, Finished(key))  # whether it obeys is drawn: see `exit`
            case KillProcess(process=process, incarnation=incarnation):
                self.tell(at, Finished(key))
                self.exit(at, process, incarnation, -9)
            case CheckAttempts():
                self.tell(at, Finished(key, self.settings.attempt))
            case MirrorDirectory():
                self.tell(at, Finished(key))
            case EndRun():
                assert not at.running, f"{at.name} ended before {at.running}"
                at.ended = action

    def exit(self, at: Supervisor, process: str, incarnation: int, code: int) -> None:
        key = at.running.pop((process, incarnation), None)
        if key is not None:
            self.tell(at, Finished(key, code))

    def deliver(self, index: int, *, keep: bool = False) -> None:
        """One message arrives; `keep`: another copy of it is still on its way."""
        sent_at, sender, receiver, message = self.mail[index]
        if not keep:
            del self.mail[index]
        to = self.supervisors.get(receiver)
        if to is None or self.now - sent_at > MESSAGE_LIVES_S or self.cut & {sender, receiver}:
            return
        self.tell(to, Received(sender, message))

    def advance(self) -> None:
        """Time goes on by one step; timers that are due fire."""
        self.now += STEP_S
        self.mail = [letter for letter in self.mail if self.now - letter[0] <= MESSAGE_LIVES_S]
        for supervisor in list(self.supervisors.values()):
            for key in [key for key, at in supervisor.timers.items() if at <= self.now]:
                if supervisor.timers.get(key, self.now + 1) <= self.now:
                    del supervisor.timers[key]
                    self.tell(supervisor, TimerFired(key))

    def living(self) -> list[tuple[str, str, int]]:
        """(node, process, incarnation) of every process that is alive."""
        return [(one.name, *child) for one in self.supervisors.values() for child in one.running]

    def register_all(self) -> None:
        """Everything that lives on a node that can be heard says so; cells of several nodes open their rendezvous."""
        for node, process, incarnation in self.living():
            if node not in self.cut:
                self.tell(self.home, Received(process, RendezvousOpen(process, incarnation, "host:7")))
                self.tell(self.home, Received(process, Register(process, incarnation, "http://x", 1)))

    def restart_cell(self, cell: str, incarnation: int) -> None:
        self.tell(self.home, Received("controller", RestartCell(cell, incarnation, "drawn")))

    def finish(self) -> None:
        self.tell(self.home, Received(HOME, FinishRun(0, "over")))

    def check(self) -> None:
        """Of every child at most one incarnation is alive, wherever its parts are."""
        incarnations: dict[str, int] = {}
        for _, process, incarnation in self.living():
            assert incarnations.setdefault(process, incarnation) == incarnation, f"two incarnations of {process} are alive"
