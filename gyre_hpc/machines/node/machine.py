"""Carries out the orders of supervisor-0 on another node, says what is there, and ends what is there when no orders come.

Lifecycle: serving -> leaving (the run is over here, or a satellite goes) -> ended
           serving | leaving -> fenced (silence) -> ended

Invariants (each has a test):
  - an order that is not newer, or that is for another life of this node, changes nothing;
  - an incarnation is started at most once, and never after it was wanted gone;
  - what the orders do not name is killed;
  - an end is told until the orders name the child no more;
  - after `silence_s` without newer orders nothing is started any more, every child is killed, and the process ends.
"""

import enum

from gyre_hpc.machines.base import Effect, Failed, Finished, Input, Machine, Note, Received, Restarted, Send, SetTimer, Start, TimerFired
from gyre_hpc.machines.node.local_child import LocalChild
from gyre_hpc.machines.node.settings import NodeSettings
from gyre_hpc.machines.supervision.actions import DumpStacks, EndRun, KillProcess, SpawnProcess, TerminateProcess
from gyre_hpc.machines.supervision.settings import NODE_LOST, REFUSED
from gyre_hpc.protocol.supervision import ChildEnd, ChildOrder, Directory, FinishRun, NodeOrders, NodeReport, Wanted

REPORT, GRACE, GONE, LEAVE, END = "report", "grace", "gone", "leave", "end"
_TERMINATED = -15
_STRENGTH = {Wanted.run: 0, Wanted.terminate: 1, Wanted.kill: 2}


class Phase(enum.Enum):
    serving = "serving"
    leaving = "leaving"
    fenced = "fenced"
    ended = "ended"


class NodeMachine(Machine):
    """Begins at Restarted. FinishRun from its own name stands for a signal to this supervisor."""

    def __init__(self, settings: NodeSettings) -> None:
        self._settings = settings
        self._children: dict[tuple[str, int], LocalChild] = {}
        self._phase = Phase.serving
        self._orders = -1
        """Number of the newest."""
        self._directory = -1
        """Number of the newest."""
        self._heard_at = 0.0
        self._report = 0
        self._told: tuple[object, ...] = ()
        """What the newest report said."""
        self._is_over = False
        self._leaving = ""
        self._is_going = False
        """Nothing is left to wait for."""
        self._exit = EndRun(0, "the run is over")

    def handle(self, now: float, input: Input) -> list[Effect]:
        if self._phase is Phase.ended:
            return []
        if isinstance(input, Restarted):
            self._heard_at = now
            return self._say()
        effects = self._fence(now)
        match input:
            case Received(sender=sender, message=message):
                effects += self._received(now, sender, message)
            case TimerFired(key=key):
                effects += self._timer(key)
            case Finished(key=key, result=result):
                effects += self._acted(key, result if isinstance(result, int) else 0, "")
            case Failed(key=key, reason=reason):
                effects += self._acted(key, 1, f"could not be started: {reason}")
            case _:
                raise AssertionError(f"a node is never told {input!r}")
        return effects + self._say_changes() + self._leave_if_empty()

    # what happens

    def _received(self, now: float, sender: str, message: object) -> list[Effect]:
        match message:
            case NodeOrders() if sender == self._settings.supervisor:
                return self._ordered(now, message)
            case FinishRun() if sender == self._settings.name:
                return self._signalled(message.reason)
            case Directory(number=number):
                self._directory = max(self._directory, number)
                return []  # the mail goes by it
        return [Note("message_ignored", {"sender": sender, "message": type(message).__name__})]

    def _ordered(self, now: float, orders: NodeOrders) -> list[Effect]:
        if self._phase is Phase.fenced or orders.life != self._settings.life or orders.number <= self._orders:
            return []
        self._orders, self._heard_at = orders.number, now
        effects: list[Effect] = []
        for order in orders.children:
            effects += self._obey(order)
        named = {(order.process, order.incarnation) for order in orders.children}
        for key in [key for key in self._children if key not in named]:
            if self._children[key].is_running:
                effects += self._want(self._children[key], Wanted.kill)
            else:
                del self._children[key]
        if orders.is_over and not self._is_over:
            self._is_over, self._phase = True, Phase.leaving
            if orders.refused and not self._leaving:
                self._exit = EndRun(REFUSED, f"it has no part in the run: {orders.refused}")
        return effects

    def _obey(self, order: ChildOrder) -> list[Effect]:
        child = self._children.get((order.process, order.incarnation))
        if child is not None:
            return self._stacks(child, order.stacks) + self._want(child, order.wanted)
        child = self._children[order.process, order.incarnation] = LocalChild(process=order.process, incarnation=order.incarnation)
        if order.wanted is not Wanted.run or self._phase is not Phase.serving:
            child.end = ChildEnd(order.process, order.incarnation, _TERMINATED, "it was not started")
            return []
        return [Start(child.key("child"), SpawnProcess(order.process, order.incarnation, order.part, order.rendezvous))]

    def _stacks(self, child: LocalChild, wanted: int) -> list[Effect]:
        if wanted <= child.stacks_asked or child.is_writing_stacks or not child.is_running:
            return []
        child.stacks_asked, child.is_writing_stacks = wanted, True
        return [Start(child.key("stacks"), DumpStacks(child.process, child.incarnation))]

    def _want(self, child: LocalChild, wanted: Wanted) -> list[Effect]:
        if _STRENGTH[wanted] > _STRENGTH[child.wanted]:
            child.wanted = wanted
        if not child.is_running or child.is_killing:
            return []
        if child.wanted is Wanted.kill:
            child.is_killing = True
            return [Start(child.key("kill"), KillProcess(child.process, child.incarnation))]
        if child.wanted is Wanted.terminate and not child.is_signalled and not child.is_writing_stacks:
            child.is_signalled = True
            return [Start(child.key("term"), TerminateProcess(child.process, child.incarnation))]
        return []

    def _signalled(self, reason: str) -> list[Effect]:
        """A satellite leaves. Elsewhere supervisor-0 got the same signal and ends the run in good order: its word is waited for."""
        if not self._settings.is_joiner or self._phase is not Phase.serving:
            return []
        self._phase, self._leaving = Phase.leaving, reason
        effects = self._want_all(Wanted.terminate)
        return [*effects, SetTimer(GRACE, self._settings.grace_s), Note("node_leaving", {"reason": reason})]

    def _timer(self, key: str) -> list[Effect]:
        if key == REPORT:
            again = [child for child in self._running() if child.wanted is Wanted.kill]  # a kill that failed, or that did not help
            return [effect for child in again for effect in self._want(child, Wanted.kill)] + self._say()
        if key == GRACE:
            return self._want_all(Wanted.kill)
        if key in (GONE, LEAVE):
            return self._end()
        return []

    def _acted(self, key: str, code: int, reason: str) -> list[Effect]:
        verb, _, rest = key.partition("/")
        name, _, incarnation = rest.rpartition("/")
        child = self._children.get((name, int(incarnation))) if name else None
        if child is None or verb not in ("child", "kill", "stacks"):
            return []
        if verb == "stacks":
            child.is_writing_stacks = False
            return self._want(child, child.wanted)
        if verb == "kill":
            child.is_killing = False
            return []
        child.end = ChildEnd(child.process, child.incarnation, code, reason)
        return []  # supervisor-0 notes it for all nodes

    # silence

    def _fence(self, now: float) -> list[Effect]:
        """Measured at every input: what waited in a queue while this process stood still is no fresh order."""
        silence = now - self._heard_at
        if self._phase is Phase.fenced or silence <= self._settings.silence_s:
            return []
        self._phase = Phase.fenced
        reason = f"no orders of {self._settings.supervisor} for {silence:.0f} s"
        if not self._is_over:
            self._exit = EndRun(NODE_LOST, reason)
        fields = {"silent_s": silence, "children": len(self._running())}
        return [Note("node_fenced", fields), *self._want_all(Wanted.kill), SetTimer(GONE, self._settings.grace_s)]

    # reports

    def _say(self) -> list[Effect]:
        self._report += 1
        running, ended = self._state()
        self._told = (running, ended, self._is_over)
        settings = self._settings
        leaving = self._leaving if not running else ""
        report = NodeReport(
            settings.name, settings.life, self._report, self._orders, settings.url, settings.offer, running, ended, leaving, self._directory,
        )  # fmt: skip
        return [Send(settings.supervisor, report), SetTimer(REPORT, settings.report_s)]

    def _say_changes(self) -> list[Effect]:
        return self._say() if (*self._state(), self._is_over) != self._told else []

    def _state(self) -> tuple[tuple[tuple[str, int], ...], tuple[ChildEnd, ...]]:
        running = tuple((child.process, child.incarnation) for child in self._running())
        return running, tuple(child.end for child in self._children.values() if child.end is not None)

    # the end

    def _leave_if_empty(self) -> list[Effect]:
        """Once nothing runs and, where somebody listens, every end was heard."""
        if self._running():
            return []
        if self._phase is Phase.fenced:
            return self._end()
        if self._phase is not Phase.leaving or self._is_going or (self._is_over and self._children):
            return []
        self._is_going = True
        return [*self._say(), SetTimer(LEAVE, self._settings.leave_s)]

    def _end(self) -> list[Effect]:
        if self._running() and self._phase is not Phase.fenced:
            return []
        self._phase = Phase.ended
        return [Start(END, self._exit)]

    def _running(self) -> list[LocalChild]:
        return [child for child in self._children.values() if child.is_running]

    def _want_all(self, wanted: Wanted) -> list[Effect]:
        return [effect for child in self._running() for effect in self._want(child, wanted)]
