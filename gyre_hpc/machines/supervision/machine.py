"""Keeps the processes of a run running until it is over: those of its own node, and by orders those of the others.

Invariants (each has a test):
  - at most one incarnation of a child runs; the next starts only after the last one's end was told, or died with its node's supervisor;
  - a cell is started again only on the controller's order, and only the incarnation that was named;
  - after the run was finished nothing is started, and it ends only once every child is gone;
  - a message of an older incarnation, or of an older life of a node, changes nothing;
  - a node that was given up has no part in the attempt any more: its cells and its runner are set aside; without the core the attempt ends.
"""

from gyre_hpc.machines.base import Effect, Failed, Finished, Input, Machine, Note, Received, Restarted, SetTimer, Start, TimerFired
from gyre_hpc.machines.supervision.actions import CheckAttempts
from gyre_hpc.machines.supervision.child import ChildState, Policy, ending
from gyre_hpc.machines.supervision.children import Children
from gyre_hpc.machines.supervision.ending import FAREWELL, STAGE, TICK, Ending
from gyre_hpc.machines.supervision.exits import Exits
from gyre_hpc.machines.supervision.last_save import SAVE, SAVE_AGAIN
from gyre_hpc.machines.supervision.people import COMMANDS, People
from gyre_hpc.machines.supervision.presence import Presence
from gyre_hpc.machines.supervision.registry import MIRROR, PUBLISH, Registry
from gyre_hpc.machines.supervision.remote import ARRIVAL, Remote
from gyre_hpc.machines.supervision.settings import SUPERSEDED, SupervisionSettings
from gyre_hpc.protocol.people import Command
from gyre_hpc.protocol.supervision import FinishRun, NodeReport, Register, RendezvousOpen, RestartCell, SaveAnswer, SetAside, WriteStacks

ATTEMPTS, CONTROLLER = "attempts", "controller"


class SupervisionMachine(Machine):
    """Begins at Restarted. FinishRun from its own name stands for a signal to the supervisor."""

    def __init__(self, settings: SupervisionSettings) -> None:
        self._settings = settings
        self._children = Children(settings)
        self._remote = Remote(settings, self._children)
        self._ending = Ending(settings, self._children, self._remote)
        self._exits = Exits(settings, self._children, self._ending)
        self._presence = Presence(settings, self._children, self._remote, self._ending, self._exits)
        self._people = People(settings, self._children, self._ending)
        self._registry = Registry(settings.publish_s)
        self._checking = False

    def handle(self, now: float, input: Input) -> list[Effect]:
        again = is_due = False
        match input:
            case Restarted():
                effects = self._begin()
            case Received(sender=sender, message=message):
                effects = self._received(now, sender, message)
            case TimerFired(key=key):
                again, is_due = key == TICK, key == PUBLISH
                effects = self._tick(now) if again else self._timer(now, key)
            case Finished(key=key, result=result):
                effects = self._finished(now, key, result)
            case Failed(key=key, reason=reason):
                effects = self._failed(now, key, reason)
            case _:
                raise AssertionError(f"supervision is never told {input!r}")
        return effects + self._tell(now, again, is_due) + self._ending.end_if_over()

    def _tell(self, now: float, again: bool, is_due: bool) -> list[Effect]:
        """The directory first: our mail finds the nodes by it."""
        is_finishing = self._ending.finish is not None
        effects = self._registry.publish(now, self._children.all, self._remote.all, again=again and not is_finishing, due=is_due)
        if not self._ending.is_ended:
            effects += self._remote.orders(is_over=self._ending.all_told, again=again)
        return effects + self._presence.dismissals()

    # what happens

    def _begin(self) -> list[Effect]:
        effects: list[Effect] = [SetTimer(TICK, self._settings.tick_s), *self._remote.begin(), *self._people.begin()]
        for child in self._children.cells_first:
            if self._remote.are_here(child.places):
                effects += self._children.spawn(child)
        return effects

    def _received(self, now: float, sender: str, message: object) -> list[Effect]:
        own = self._settings.name
        match message:
            case Register():
                return self._children.registered(message)
            case Command():
                return self._people.told(message)
            case NodeReport() if sender == message.node:
                return self._presence.heard(now, message)
            case RendezvousOpen():
                return self._children.opened(message)
            case RestartCell() if sender == CONTROLLER:
                return self._restart_cell(message)
            case SetAside() if sender == CONTROLLER:
                return self._set_aside(message)
            case WriteStacks() if sender == CONTROLLER:
                return self._children.write_stacks(now, message)
            case FinishRun() if sender in (CONTROLLER, own):
                return self._ending.begin(message)
            case SaveAnswer() if sender == CONTROLLER:
                return self._ending.save_told(message)
        return [Note("message_ignored", {"sender": sender, "message": type(message).__name__})]

    def _restart_cell(self, order: RestartCell) -> list[Effect]:
        child = self._children.get(order.cell)
        if child is None or child.policy is not Policy.cell or child.incarnation != order.incarnation:
            return []
        if child.set_aside or child.is_held or self._ending.finish or child.state is ChildState.waiting:
            return []
        if child.is_running:
            child.restart_wanted = True
            return self._children.stop(child, f"restart ordered: {order.reason}", is_fault=True)
        if len(child.failures) < 2:
            return self._children.spawn(child)
        child.state = ChildState.waiting
        return [self._exits.pause(child, len(child.failures))]

    def _set_aside(self, order: SetAside) -> list[Effect]:
        child = self._children.get(order.cell)
        if child is None or child.policy is not Policy.cell or child.set_aside or self._ending.finish:
            return []
        child.set_aside, child.restart_wanted = True, False
        reason = f"set aside: {order.reason}"
        if child.is_running:
            return self._children.stop(child, reason)
        child.state, child.lost = ChildState.over, reason
        return [Note("process_set_aside", {"process": child.name, "reason": reason})]

    def _tick(self, now: float) -> list[Effect]:
        if self._ending.is_ended or (self._ending.finish is not None and not self._remote.all):
            return []
        effects: list[Effect] = [SetTimer(TICK, self._settings.tick_s), *self._presence.tick(now)]
        if self._ending.finish is not None:
            return effects
        if not self._checking:
            self._checking = True
            effects.append(Start(ATTEMPTS, CheckAttempts()))
        for child in self._children.all:
            if child.state is not ChildState.live or child.policy is Policy.cell:
                continue  # a silent cell is the controller's affair
            if not self._remote.are_heard(child.places):
                continue  # its node is silent as a whole
            child.silent_ticks += 1
            if child.silent_ticks > self._settings.silent_ticks:
                effects += self._children.stop(child, "sent no heartbeat", is_fault=True)
        return effects

    def _timer(self, now: float, key: str) -> list[Effect]:
        verb, _, rest = key.partition("/")
        if verb == COMMANDS:
            return self._people.look()
        if verb in (SAVE, SAVE_AGAIN):
            return self._ending.timer(verb)
        if verb == STAGE:
            return self._ending.tell_all()
        if verb == FAREWELL:
            self._ending.farewell_over()
            return []
        if verb == ARRIVAL:
            return self._presence.overdue(now, rest)
        name, _, incarnation = rest.rpartition("/")
        child = self._children.get(name)
        if child is None or child.incarnation != int(incarnation):
            return []
        if verb == "backoff" and child.state is ChildState.waiting:
            if child.is_held:
                return [SetTimer(key, self._settings.backoff_cap_s)]
            return self._children.spawn(child)
        if verb == "start" and child.state is ChildState.starting:
            if child.is_held:
                return [SetTimer(key, self._settings.start_s(child.policy))]
            late = f"did not register within {self._settings.start_s(child.policy):g} s"
            return self._children.stop(child, late, is_fault=True)
        if verb == "stacks" and child.state is ChildState.stopping:
            return self._children.ask_stacks(child, child.lost)
        if verb == "grace" and child.state is ChildState.stopping:
            return self._children.kill(child)
        if verb == "gone" and child.state is ChildState.stopping:
            return self._ending.unkillable(child)
        return []

    def _finished(self, now: float, key: str, result: object) -> list[Effect]:
        if (effects := self._people.finished(key, result)) is not None:
            return effects
        if key == MIRROR:
            return self._registry.mirrored()
        if key == ATTEMPTS:
            self._checking = False
            assert isinstance(result, int)
            if result <= self._settings.attempt:
                return []
            return self._ending.begin(FinishRun(SUPERSEDED, f"attempt {result} of this run lives; this is {self._settings.attempt}"))
        if key.startswith("child/"):
            assert isinstance(result, int)
            return self._exited(now, key, ending(result), result)
        return self._children.stacks_over(key)

    def _failed(self, now: float, key: str, reason: str) -> list[Effect]:
        if (effects := self._people.failed(key, reason)) is not None:
            return effects
        if key == MIRROR:
            return [*self._registry.mirrored(), Note("mirror_failed", {"reason": reason})]
        if key == ATTEMPTS:
            self._checking = False
            return [Note("attempts_unread", {"reason": reason})]
        if key.startswith("child/"):
            return self._exited(now, key, f"could not be started: {reason}", 1)
        return [Note("signal_failed", {"key": key, "reason": reason}), *self._children.stacks_over(key), *self._children.kill_again(key)]

    def _exited(self, now: float, key: str, reason: str, code: int) -> list[Effect]:
        """The part on this node."""
        child = self._children.by_name[key.split("/")[1]]
        return self._exits.part_over(now, child, child.places.index(self._settings.name), reason, code)
