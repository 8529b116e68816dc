"""One process: a machine, its timers, running actions and log. Keeps the rules of machines/base.py.

Lifecycle: starting -> alive (paused at times) -> dead. What belongs to it (timers, actions, closures made by `later`) dies with
it; what had reached the disk stays.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from gyre_hpc.machines.attempts import Sender, sender_of
from gyre_hpc.machines.base import (
    CancelTimer,
    Effect,
    Failed,
    Finished,
    Input,
    Machine,
    Note,
    Persist,
    Persisted,
    Progressed,
    Received,
    Send,
    SetTimer,
    Start,
    Stop,
    TimerFired,
)
from gyre_hpc.protocol.node_map import FIRST
from gyre_hpc.protocol.supervision import Directory, Register
from gyre_hpc.simulation.kernel import Call, Violation

if TYPE_CHECKING:
    from gyre_hpc.simulation.run import Simulation

Handler = Callable[["Running", Any], None]


class ActionFailed(Exception):
    """Becomes Failed(kind, reason)."""

    def __init__(self, kind: str, reason: str = "simulated") -> None:
        self.kind, self.reason = kind, reason
        super().__init__(f"{kind}: {reason}")


class Running:
    """A started action: ends once, or never if its process dies or stops it."""

    def __init__(self, process: "Process", key: str, action: Any) -> None:
        self.process, self.key, self.action = process, key, action
        self.name = type(action).__name__
        self.is_cancelled = False
        """Stopped before it did anything."""
        self.extra_s = 0.0
        self.must_fail = ""
        self.odd_rank = ""
        """`deaf`: the last rank does not hear of it. `keeps`: it keeps its memory."""
        self.on_stop: Call | None = None
        self.half_done: Call | None = None
        """What a crash in its middle may have done all the same."""

    @property
    def is_current(self) -> bool:
        return self.process.alive and self.process.actions.get(self.key) is self

    def end_after(self, after_s: float, work: Callable[[], Any]) -> None:
        """Do `work` then, and end with what it returns or raises. The work of a stopped action may happen all the same."""
        self.process.later(after_s + self.extra_s, partial(self.end, work))

    def end(self, work: Callable[[], Any]) -> None:
        if self.is_cancelled:
            return
        if self.must_fail == "before":
            return self.fail("RuntimeError", "simulated failure")
        try:
            result = work()
        except ActionFailed as failure:
            return self.fail(failure.kind, failure.reason)
        if self.must_fail:
            return self.fail("RuntimeError", "simulated failure after the fact")
        self.finish(result)

    def progress(self, item: Any) -> None:
        if self.is_current:
            self.process.tell(Progressed(self.key, item))

    def finish(self, result: Any = None) -> None:
        self._over(Finished(self.key, result))

    def fail(self, kind: str, reason: str = "") -> None:
        self._over(Failed(self.key, kind, reason))

    def _over(self, ending: Input) -> None:
        if not self.is_current:
            return
        del self.process.actions[self.key]
        sim = self.process.sim
        sim.faults.touch(self.process, f"{self.name}:end")
        if self.process.alive:
            self.process.tell(ending)


class Process:
    """`name` of the directory, `incarnation` of the supervisor, `attempt` of the run."""

    def __init__(self, sim: "Simulation", name: str, incarnation: int, attempt: int, node: str = FIRST) -> None:
        self.sim, self.name, self.incarnation, self.attempt = sim, name, incarnation, attempt
        self.node = node
        """Supervisor of its node."""
        self.kind = name.partition("-")[0]
        self.url = name if self.kind == "gateway" else f"{name}#{incarnation}"
        """A restarted gateway keeps its port, everybody else gets a new one."""
        self.alive = True
        self.paused = False
        self.exit_code = -9
        self.machine: Machine | None = None
        self.handlers: dict[type, Handler] = {}
        self.world: Any = None
        self.actions: dict[str, Running] = {}
        self.addresses: dict[str, str] = {}
        self.on_death: list[Call] = []
        self._directory = -1
        self._timers: dict[str, int] = {}
        self._timer_ordinal = 0
        self._backlog: list[Call] = []
        self._waiting: list[tuple[str, Any]] = []
        self._writing: list[tuple[str, Any]] = []

    @property
    def log(self) -> list[Any]:
        return self.sim.disk.logs[self.name, self.attempt]

    # time

    def later(self, after_s: float, call: Call) -> None:
        """Something this process does after a while: not while it is paused, never once it is dead."""
        self.sim.kernel.at(after_s, partial(self._do, call))

    def _do(self, call: Call) -> None:
        if not self.alive:
            return
        if self.paused:
            self._backlog.append(call)
            return
        call()

    def awaits(self, timer: str) -> bool:
        """It is set and has not fired."""
        return timer in self._timers

    def resume(self) -> None:
        if not self.alive or not self.paused:
            return
        self.paused = False
        backlog, self._backlog = self._backlog, []
        for call in backlog:
            self._do(call)

    def die(self) -> None:
        """kill -9."""
        if not self.alive:
            return
        self.alive = False
        dice = self.sim.kernel.rng
        if self._writing:
            # A write under way may have come through, or a part of it.
            done = dice.randint(0, len(self._writing))
            for _, record in self._writing[:done]:
                self.sim.durable(self, record)
        for running in list(self.actions.values()):
            if running.half_done is not None and dice.random() < 0.5:
                running.half_done()
        for call in self.on_death:
            call()

    # inputs and effects

    def tell(self, told: Input) -> None:
        if not self.alive:
            return
        if self.paused:
            self._backlog.append(partial(self.tell, told))
            return
        kernel, watch, machine = self.sim.kernel, self.sim.watch, self.machine
        assert machine is not None
        kernel.mark(self.name, type(told).__name__, getattr(told, "key", ""))
        if kernel.print is not None:
            kernel.say(f"{self.name} <- {_short(told)}")
        try:
            effects = machine.handle(kernel.now, told)
        except AssertionError as error:
            raise Violation(f"{self.name} broke its own rule on {_short(told)}: {error}") from error
        watch.handled(self, told, effects)
        for effect in effects:
            if not self.alive:
                return
            if kernel.print is not None and not isinstance(effect, SetTimer | CancelTimer):
                kernel.say(f"    {self.name} -> {_short(effect)}")
            _CARRY_OUT[type(effect)](self, effect)
        if self.alive:
            watch.at_rest(self)

    def receive(self, sender: str, attempt: int, message: Any) -> None:
        """A message arrived at this process's door."""
        of = sender_of(attempt, self.attempt)
        if of is Sender.over:
            self.sim.refused_as_over(sender)
            return
        if of is Sender.newer:
            self.later(0.0, lambda: self.sim.end_process(self, 1))
            return
        self.sim.watch.listens(self, attempt)
        if isinstance(message, Directory) and message.number > self._directory:
            self._directory = message.number
            self.addresses |= {entry.process: entry.url for entry in message.entries if entry.url}
        if isinstance(message, Register) and self.name == FIRST:
            self.addresses[message.process] = message.url
        self.tell(Received(sender, message))

    def _send(self, effect: Send) -> None:
        if isinstance(effect.message, Directory):
            # The supervisor's own mail goes by the directory that it sends; of its children it knows more from themselves.
            nodes = {entry.process: entry.url for entry in effect.message.entries if entry.process.startswith("supervisor")}
            self.addresses |= nodes
        self.sim.network.send(self, effect.to, effect.message)

    def _set_timer(self, effect: SetTimer) -> None:
        self._timer_ordinal += 1
        mark = self._timers[effect.key] = self._timer_ordinal
        self.later(effect.after_s, partial(self._fire, effect.key, mark))

    def _cancel_timer(self, effect: CancelTimer) -> None:
        self._timers.pop(effect.key, None)

    def _persist(self, effect: Persist) -> None:
        self._waiting.append((effect.key, effect.record))
        self.sim.faults.touch(self, f"{type(effect.record).__name__}:begin")
        if not self._writing:
            self._write()

    def _note(self, effect: Note) -> None:
        self.sim.noted(self, effect.kind, effect.fields)

    def _fire(self, key: str, mark: int) -> None:
        if self._timers.get(key) == mark:
            del self._timers[key]
            self.tell(TimerFired(key))

    def _start(self, effect: Start) -> None:
        key, action = effect.key, effect.action
        if key in self.actions:
            raise Violation(f"{self.name}: action {key} started twice")
        running = self.actions[key] = Running(self, key, action)
        self.sim.faults.begin(running)
        if self.alive:
            self.handlers[type(action)](running, action)

    def _stop(self, effect: Stop) -> None:
        running = self.actions.pop(effect.key, None)
        if running is None:
            return
        running.is_cancelled = self.sim.kernel.rng.random() < 0.5
        if running.on_stop is not None:
            running.on_stop()

    # log: group commit; a failed write fails everything behind it too

    def _write(self) -> None:
        self._writing, self._waiting = self._waiting, []
        kernel = self.sim.kernel
        self.later(self.sim.disk.delay(self.name, kernel.now, kernel.rng), self._written)

    def _written(self) -> None:
        batch, self._writing = self._writing, []
        if self.sim.disk.is_full(self.name, self.sim.kernel.now):
            batch, self._waiting = batch + self._waiting, []
            for key, _ in batch:
                self.tell(Failed(key, "StorageFull", "no space left (simulated)"))
            return
        for _, record in batch:
            self.sim.durable(self, record)
        if self._waiting:
            self._write()
        for key, record in batch:
            self.sim.faults.touch(self, f"{type(record).__name__}:end")
            self.tell(Persisted(key))


_CARRY_OUT: dict[type[Effect], Callable[[Process, Any], None]] = {
    Send: Process._send, SetTimer: Process._set_timer, CancelTimer: Process._cancel_timer, Persist: Process._persist,
    Start: Process._start, Stop: Process._stop, Note: Process._note,
}  # fmt: skip


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 400 else text[:400] + "…"
