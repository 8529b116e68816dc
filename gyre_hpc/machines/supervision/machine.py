"""Keeps the processes of one node running until the run is over.

Invariants (each has a test):
  - at most one incarnation of a child runs; the next starts only after the last one's end was told;
  - a cell is started again only on the controller's order, and only the incarnation that was named;
  - after the run was finished nothing is started, and it ends only once every child is gone;
  - a message of an older incarnation changes nothing.
"""

from gyre_hpc.machines.base import (
    CancelTimer,
    Effect,
    Failed,
    Finished,
    Input,
    Machine,
    Note,
    Received,
    Restarted,
    SetTimer,
    Start,
    TimerFired,
)
from gyre_hpc.machines.supervision.actions import CheckAttempts, EndRun, KillProcess, SpawnProcess, TerminateProcess
from gyre_hpc.machines.supervision.child import Child, ChildState, Policy, ending
from gyre_hpc.machines.supervision.registry import MIRROR, Registry
from gyre_hpc.machines.supervision.settings import REFUSED, SUPERSEDED, SupervisionSettings
from gyre_hpc.protocol.supervision import FinishRun, Register, RestartCell, SetAside

TICK, ATTEMPTS, END, CONTROLLER = "tick", "attempts", "end", "controller"


class SupervisionMachine(Machine):
    """Begins at Restarted. FinishRun from its own name stands for a signal to the supervisor."""

    def __init__(self, settings: SupervisionSettings) -> None:
        self._settings = settings
        given = [(Policy.service, settings.services), (Policy.cell, settings.cells), (Policy.extra, settings.extras)]
        self._children = {name: Child(name=name, policy=policy) for policy, names in given for name in names}
        self._registry = Registry()
        self._finish: FinishRun | None = None
        self._all_told = False
        self._ended = False
        self._checking = False

    def handle(self, now: float, input: Input) -> list[Effect]:
        again = False
        match input:
            case Restarted():
                effects = self._begin()
            case Received(sender=sender, message=message):
                effects = self._received(now, sender, message)
            case TimerFired(key=key):
                again = key == TICK
                effects = self._tick() if again else self._timer(now, key)
            case Finished(key=key, result=result):
                effects = self._finished(now, key, result)
            case Failed(key=key, reason=reason):
                effects = self._failed(now, key, reason)
            case _:
                raise AssertionError(f"supervision is never told {input!r}")
        return effects + self._registry.publish(self._children.values(), again=again and self._finish is None) + self._end_if_over()

    # what happens

    def _begin(self) -> list[Effect]:
        cells_first = sorted(self._children.values(), key=lambda child: child.policy is not Policy.cell)
        effects: list[Effect] = [SetTimer(TICK, self._settings.tick_s)]
        for child in cells_first:  # they load the most before they can register
            effects += self._spawn(child)
        return effects

    def _received(self, now: float, sender: str, message: object) -> list[Effect]:
        own = self._settings.name
        match message:
            case Register():
                return self._register(message)
            case RestartCell() if sender == CONTROLLER:
                return self._restart_cell(message)
            case SetAside() if sender == CONTROLLER:
                return self._set_aside(message)
            case FinishRun() if sender in (CONTROLLER, own):
                return self._finish_run(message)
        return [Note("message_ignored", {"sender": sender, "message": type(message).__name__})]

    def _register(self, message: Register) -> list[Effect]:
        child = self._children.get(message.process)
        if child is None or message.incarnation != child.incarnation or child.state not in (ChildState.starting, ChildState.live):
            return []
        child.silent_ticks = 0
        child.url = message.url
        if child.state is ChildState.live:
            return []
        child.state, child.lost = ChildState.live, ""
        fields = {"process": child.name, "incarnation": child.incarnation, "pid": message.pid}
        return [CancelTimer(child.key("start")), Note("process_registered", fields)]

    def _restart_cell(self, order: RestartCell) -> list[Effect]:
        child = self._children.get(order.cell)
        if child is None or child.policy is not Policy.cell or child.incarnation != order.incarnation or child.set_aside or self._finish:
            return []
        if child.is_running:
            child.restart_wanted = True
            return self._stop(child, f"restart ordered: {order.reason}")
        if child.state is ChildState.waiting:
            return []
        if len(child.failures) < 2:
            return self._spawn(child)
        child.state = ChildState.waiting
        return [self._pause(child, len(child.failures))]

    def _set_aside(self, order: SetAside) -> list[Effect]:
        child = self._children.get(order.cell)
        if child is None or child.policy is not Policy.cell or child.set_aside or self._finish:
            return []
        child.set_aside, child.restart_wanted = True, False
        reason = f"set aside: {order.reason}"
        if child.is_running:
            return self._stop(child, reason)
        child.state, child.lost = ChildState.over, reason
        return [Note("process_set_aside", {"process": child.name, "reason": reason})]

    def _tick(self) -> list[Effect]:
        if self._finish is not None:
            return []
        effects: list[Effect] = [SetTimer(TICK, self._settings.tick_s)]
        if not self._checking:
            self._checking = True
            effects.append(Start(ATTEMPTS, CheckAttempts()))
        for child in self._children.values():
            if child.state is not ChildState.live or child.policy is Policy.cell:
                continue  # a silent cell is the controller's affair
            child.silent_ticks += 1
            if child.silent_ticks > self._settings.silent_ticks:
                effects += self._stop(child, "sent no heartbeat")
        return effects

    def _timer(self, now: float, key: str) -> list[Effect]:
        verb, _, rest = key.partition("/")
        if verb == "stage":
            return self._tell_all()
        name, _, incarnation = rest.rpartition("/")
        child = self._children[name]
        if child.incarnation != int(incarnation):
            return []
        if verb == "backoff" and child.state is ChildState.waiting:
            return self._spawn(child)
        if verb == "start" and child.state is ChildState.starting:
            return self._stop(child, f"did not register within {self._settings.start_s(child.policy):g} s")
        if verb == "grace" and child.state is ChildState.stopping:
            kill = Start(child.key("kill"), KillProcess(child.name, child.incarnation))
            return [kill, SetTimer(child.key("gone"), self._settings.grace_s)]
        if verb == "gone" and child.state is ChildState.stopping:
            return self._give_up(child)
        return []

    def _finished(self, now: float, key: str, result: object) -> list[Effect]:
        if key == MIRROR:
            return self._registry.mirrored()
        if key == ATTEMPTS:
            self._checking = False
            assert isinstance(result, int)
            if result > self._settings.attempt:
                return self._finish_run(FinishRun(SUPERSEDED, f"attempt {result} of this run lives; this is {self._settings.attempt}"))
            return []
        if key.startswith("child/"):
            assert isinstance(result, int)
            return self._exited(now, key, ending(result), result)
        return []

    def _failed(self, now: float, key: str, reason: str) -> list[Effect]:
        if key == MIRROR:
            return [*self._registry.mirrored(), Note("mirror_failed", {"reason": reason})]
        if key == ATTEMPTS:
            self._checking = False
            return [Note("attempts_unread", {"reason": reason})]
        if key.startswith("child/"):
            return self._exited(now, key, f"could not be started: {reason}", 1)
        return [Note("signal_failed", {"key": key, "reason": reason}), *self._kill_again(key)]

    def _kill_again(self, key: str) -> list[Effect]:
        """A kill that failed is tried again; a polite one that failed is followed by it anyway."""
        stopping = [child for child in self._children.values() if child.state is ChildState.stopping]
        return [SetTimer(child.key("grace"), self._settings.grace_s) for child in stopping if key == child.key("kill")]

    # children

    def _spawn(self, child: Child) -> list[Effect]:
        child.incarnation += 1
        child.state, child.url, child.lost = ChildState.starting, "", ""
        child.restart_wanted, child.silent_ticks = False, 0
        return [
            Start(child.key("child"), SpawnProcess(child.name, child.incarnation)),
            SetTimer(child.key("start"), self._settings.start_s(child.policy)),
            Note("process_started", {"process": child.name, "incarnation": child.incarnation}),
        ]

    def _stop(self, child: Child, reason: str) -> list[Effect]:
        if child.state is ChildState.stopping:
            return []
        child.state, child.url, child.lost = ChildState.stopping, "", reason
        return [
            Start(child.key("term"), TerminateProcess(child.name, child.incarnation)),
            SetTimer(child.key("grace"), self._settings.grace_s),
        ]

    def _give_up(self, child: Child) -> list[Effect]:
        """Not even SIGKILL ended it (a hanging disk or device): the end of the run must not wait for it for ever."""
        if self._finish is not None:
            child.state = ChildState.over
        return [Note("process_unkillable", {"process": child.name, "incarnation": child.incarnation})]

    def _exited(self, now: float, key: str, reason: str, code: int) -> list[Effect]:
        _, name, _ = key.split("/")
        child = self._children[name]
        asked = child.state is ChildState.stopping
        child.url, child.lost = "", child.lost if asked else reason
        effects: list[Effect] = [CancelTimer(child.key(verb)) for verb in ("start", "grace", "gone")]
        effects.append(Note("process_ended", {"process": name, "incarnation": child.incarnation, "code": code, "reason": child.lost}))
        if self._finish is not None or child.set_aside:
            child.state = ChildState.over
            return effects + self._tell_all_after_first()
        if code == REFUSED and not asked:
            child.state = ChildState.over
            return effects + self._finish_run(FinishRun(REFUSED, f"{name} refused its configuration; see logs/{name}.log"))
        return effects + self._after_end(now, child, code)

    def _after_end(self, now: float, child: Child, code: int) -> list[Effect]:
        if child.policy is Policy.cell:
            child.state = ChildState.lost
            child.count_failure(now, self._settings.crash_window_s)
            return self._spawn(child) if child.restart_wanted else []
        if child.policy is Policy.extra and code == 0:
            child.state = ChildState.over
            return []
        child.state = ChildState.waiting
        settings = self._settings
        failures = child.count_failure(now, settings.crash_window_s)
        if failures > settings.crash_limit:
            often = f"{child.name} failed {failures} times within {settings.crash_window_s:g} s"
            return self._finish_run(FinishRun(1, f"{often}, last: {child.lost}; see logs/{child.name}.log"))
        return [self._pause(child, failures)]

    def _pause(self, child: Child, failures: int) -> Effect:
        """Longer after each failure, so that what dies at its start does not take the machine with it."""
        return SetTimer(child.key("backoff"), min(self._settings.backoff_cap_s, self._settings.backoff_s * 2 ** (failures - 1)))

    # the end

    def _finish_run(self, finish: FinishRun) -> list[Effect]:
        if self._finish is not None:
            return []
        self._finish = finish
        effects: list[Effect] = [Note("run_finishing", {"exit_code": finish.exit_code, "reason": finish.reason}), CancelTimer(TICK)]
        for child in self._children.values():
            if child.state is ChildState.waiting:
                effects.append(CancelTimer(child.key("backoff")))
            if not child.is_running:
                child.state = ChildState.over
            elif child.name in self._settings.first_to_stop:
                effects += self._stop(child, finish.reason)
        effects.append(SetTimer("stage", self._settings.grace_s))
        return effects + self._tell_all_after_first()

    def _tell_all_after_first(self) -> list[Effect]:
        """Stop the rest once those that stop first are gone."""
        first = [child for child in self._children.values() if child.name in self._settings.first_to_stop]
        if self._finish is None or self._all_told or any(child.is_running for child in first):
            return []
        return self._tell_all()

    def _tell_all(self) -> list[Effect]:
        if self._finish is None or self._all_told:
            return []
        self._all_told = True
        effects: list[Effect] = [CancelTimer("stage")]
        for child in self._children.values():
            if child.is_running:
                effects += self._stop(child, self._finish.reason)
        return effects

    def _end_if_over(self) -> list[Effect]:
        if self._finish is None or self._ended or any(child.is_running for child in self._children.values()):
            return []
        self._ended = True
        return [Start(END, EndRun(self._finish.exit_code, self._finish.reason))]
