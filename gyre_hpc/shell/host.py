"""One machine in one process: turns the world into inputs and effects into deeds, in the order the machine gave them.

Actions: a shell gives a mapping from action type to `async def action(key, action, progress) -> result`. What it returns
becomes Finished, what it raises becomes Failed (the class name as `kind`), `progress(item)` becomes Progressed. What is over in
microseconds may also be a plain function in `at_once`: its result is queued right away, which spares a task and a turn of the loop.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from gyre_hpc.clock import monotonic_s, thread_cpu_s
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
from gyre_hpc.observability.cpu import cpu_seconds, own_cpu_s
from gyre_hpc.ports import listen
from gyre_hpc.protocol.envelope import Envelope
from gyre_hpc.protocol.supervision import Directory
from gyre_hpc.shell.inbox import Inbox, make_app
from gyre_hpc.shell.log import MachineLog
from gyre_hpc.shell.mail import Mail
from gyre_hpc.shell.recorder import Recorder
from gyre_hpc.shell.serving import Serving
from gyre_hpc.shell.timers import Timers
from gyre_hpc.shell.traffic import Traffic

log = logging.getLogger(__name__)
Action = Callable[[str, Any, Callable[[Any], None]], Awaitable[Any]]
AtOnce = Callable[[Any], Any]
LATER = object()
"""Result of an AtOnce: not this one, its action in `actions` does it."""
NoteSink = Callable[[str, Mapping[str, Any]], None]


class Host:
    """Runs one machine. Lifecycle: bind() -> run(machine) -> close(). All methods belong to the loop's thread;
    `tell_from_thread` is the exception."""

    def __init__(
        self,
        *,
        name: str,
        attempt: int,
        run_token: str,
        addresses: dict[str, str],
        actions: Mapping[type, Action],
        note: NoteSink,
        at_once: Mapping[type, AtOnce] | None = None,
        machine_log: MachineLog | None = None,
        record_to: Path | None = None,
        max_body_bytes: int = 64 << 20,
        others_cpu_s: Callable[[], float] = lambda: 0.0,
        own_cpu_s: Callable[[], float] = own_cpu_s,
    ) -> None:
        """`others_cpu_s`: CPU seconds of work that this process is answerable for and that its own children did not do. `own_cpu_s`: of
        what runs here, where several share a process."""
        self.name, self.attempt = name, attempt
        self.app = make_app(run_token, max_body_bytes)
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Resolves with the reason when this process should end."""
        self._traffic = Traffic()
        self._mail = Mail(sender=name, attempt=attempt, run_token=run_token, addresses=addresses, traffic=self._traffic)
        self._actions, self._note, self._log = dict(actions), note, machine_log
        self._at_once = dict(at_once or {})
        self._others_cpu_s, self._own_cpu_s = others_cpu_s, own_cpu_s
        self._timers = Timers(lambda key: self.tell(TimerFired(key)))
        self._recorder = Recorder(record_to) if record_to else None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._queue: deque[Input] = deque()
        self._pumping = False
        self._machine: Machine | None = None
        self._serving: Serving | None = None
        self._loop = asyncio.get_running_loop()
        Inbox(attempt=attempt, deliver=self._receive, superseded=self.end).add_to(self.app)

    async def bind(self, host: str, port: int = 0) -> str:
        """Listen; return the base URL."""
        sock = listen(host, port)
        self._serving = Serving(self.app)
        url = await self._serving.start(sock)
        return f"http://{host}:{url.rpartition(':')[2]}"

    def run(self, machine: Machine, first: Input | None = None) -> None:
        """Give the machine its first input and everything that came since."""
        self._machine = machine
        if first is not None:
            self._queue.appendleft(first)
        self._pump()

    def tell(self, told: Input) -> None:
        """Queue one input and let the machine handle it."""
        self._queue.append(told)
        self._pump()

    def tell_from_thread(self, told: Input) -> None:
        self._loop.call_soon_threadsafe(self.tell, told)

    def address(self, process: str) -> str | None:
        """Base URL of a process of the run, as the newest directory has it."""
        return self._mail.address(process)

    def end(self, reason: str) -> None:
        """Ask for the end of this process."""
        if not self.ended.done():
            self.ended.set_result(reason)

    def cut(self) -> None:
        """As the end of a process does: the machine hears and says nothing any more, and every connection is gone. close() follows."""
        self._machine = None
        if self._serving is not None:
            self._serving.cut()

    async def close(self) -> None:
        """End everything of this host; the last notes are what it heard and said, and what CPU the process used."""
        self._note("traffic", self._traffic.fields())
        self._note("cpu", {"cpu_s": self._own_cpu_s(), "children_s": cpu_seconds()[1] + self._others_cpu_s()})
        self._machine = None
        self._timers.close()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._serving is not None:
            await self._serving.close()
        await self._mail.close()
        if self._log is not None:
            self._log.close()
        if self._recorder is not None:
            self._recorder.close()

    def _receive(self, envelope: Envelope, num_bytes: int) -> None:
        self._traffic.received(envelope.body, num_bytes)
        if isinstance(envelope.body, Directory):
            self._mail.learn(envelope.body)
        self.tell(Received(envelope.sender, envelope.body))

    def _pump(self) -> None:
        if self._pumping or self._machine is None:
            return
        self._pumping = True
        try:
            while self._queue and self._machine is not None:
                told, now, began = self._queue.popleft(), monotonic_s(), thread_cpu_s()
                effects = self._handle(self._machine, now, told)
                self._traffic.handled(told, thread_cpu_s() - began)
                if self._recorder is not None:
                    self._recorder.write(now, told, effects)
                for effect in effects:
                    self._carry_out(effect)
                if self._mail.superseded:
                    self.end(self._mail.superseded)
        finally:
            self._pumping = False

    def _handle(self, machine: Machine, now: float, told: Input) -> list[Effect]:
        """A machine that raised is in no state anybody knows: the process ends, and its next start restores the machine."""
        try:
            return machine.handle(now, told)
        except Exception as error:
            self._machine = None
            self.end(f"bug in {type(machine).__name__}: {type(error).__name__}: {error}")
            raise

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Send(to=to, message=message, deadline_s=deadline_s):
                if isinstance(message, Directory):
                    # The supervisor's own mail goes by the directory it sends.
                    self._mail.learn(message)
                self._mail.send(to, message, deadline_s)
            case SetTimer(key=key, after_s=after_s):
                self._timers.set(key, after_s)
            case CancelTimer(key=key):
                self._timers.cancel(key)
            case Persist(key=key, record=record):
                assert self._log is not None, f"{self.name} has no machine log"
                self._log.append(record, lambda error: self.tell(_persisted(key, error)))
            case Start(key=key, action=action):
                self._start(key, action)
            case Stop(key=key):
                task = self._tasks.pop(key, None)
                if task is not None:
                    task.cancel()
            case Note(kind=kind, fields=fields):
                self._note(kind, fields)
            case _:
                raise AssertionError(f"unknown effect {effect!r}")

    def _start(self, key: str, action: Any) -> None:
        assert key not in self._tasks, f"action {key} started twice"
        act = self._at_once.get(type(action))
        if act is not None and (ending := _ended(key, act, action)) is not None:
            self._queue.append(ending)
            return
        self._tasks[key] = self._loop.create_task(self._act(key, action))

    async def _act(self, key: str, action: Any) -> None:
        task = asyncio.current_task()

        def progress(item: Any) -> None:
            if self._tasks.get(key) is task:
                self.tell(Progressed(key, item))

        ending: Input
        try:
            ending = Finished(key, await self._actions[type(action)](key, action, progress))
        except asyncio.CancelledError:
            return
        except Exception as error:  # process edge: the machine decides what an error means
            log.debug("action %s failed", key, exc_info=True)
            ending = Failed(key, type(error).__name__, str(error))
        if self._tasks.get(key) is task:
            del self._tasks[key]
            self.tell(ending)


def _ended(key: str, act: AtOnce, action: Any) -> Input | None:
    try:
        result = act(action)
    except Exception as error:  # process edge, as in Host._act
        log.debug("action %s failed", key, exc_info=True)
        return Failed(key, type(error).__name__, str(error))
    return None if result is LATER else Finished(key, result)


def _persisted(key: str, error: Exception | None) -> Input:
    return Persisted(key) if error is None else Failed(key, type(error).__name__, str(error))
