"""A simulated agent: some turns, sub-agents in parallel, compaction, impatience, and the same request again after a lost answer.

An outside program: its retries are its own affair. Everything it does follows from its execution's name.
"""

import random
from collections.abc import Callable
from typing import Any

from gyre_hpc.chat.base import Message
from gyre_hpc.machines.call.actions import Arrived, Reply
from gyre_hpc.simulation.gateway_world import GatewayWorld
from gyre_hpc.simulation.kernel import Violation
from gyre_hpc.simulation.process import Process
from gyre_hpc.simulation.thread import About, Thread, dated

_RETRY_S = 0.4


class Agent:
    """Runs in a runner; dies with it. `done(finished)` once, unless it is stopped by force."""

    def __init__(self, process: Process, execution: str, gateway: str, done: Callable[[bool], None], life: int = 0) -> None:
        self._process, self._execution, self._gateway, self._life = process, execution, gateway, life
        self._dice = random.Random(f"{process.sim.scenario.seed}/{execution}")
        self._done = done
        self._threads: list[Thread] = []
        self._num_threads = 0
        self.is_over = False
        self.is_hanging = self._dice.random() < 0.04
        self.is_stuck = self.is_hanging and self._dice.random() < 0.3
        """Not even SIGKILL ends it."""
        process.on_death.append(self.stop)

    def start(self) -> None:
        first = [Message(role="system", content="task"), Message(role="user", content=dated(self._execution, self._life))]
        if self._dice.random() < 0.03:
            # More than the model's context: refused, and this agent knows no way out.
            first += [Message(role="user", content=f"page {page}") for page in range(140)]
        self._spawn("main", first, self._dice.randint(2, 3), lambda: None if self.is_hanging else self.end(True))

    def end(self, finished: bool) -> None:
        if not self.is_over:
            self.stop()
            self._done(finished)

    def stop(self) -> None:
        """It is gone; its connections close."""
        self.is_over = True
        for thread in self._threads:
            self._leave(thread)
            self._leave_open(thread)

    def _spawn(self, role: str, messages: list[Message], turns: int, then: Callable[[], None]) -> None:
        self._num_threads += 1
        name = (
            ""
            if role == "main" or (role == "compaction" and self._dice.random() < 0.5)
            else f"{role}-{self._num_threads}"
            if self._dice.random() < 0.6
            else role
        )
        # Names of threads are made up anew in each life.
        name = name and dated(name, self._life)
        thread = Thread(name, role, messages, turns, then, stream=self._dice.random() < 0.7)
        thread.stores = self._dice.random() < 0.3
        thread.instructed = thread.stores and role == "main" and self._dice.random() < 0.5
        thread.logprobs = self._dice.random() < 0.2
        if role == "main" and self._dice.random() < 0.01:
            # An answer that nobody gave.
            thread.previous = f"{self._execution}/999"
        if self._dice.random() < 0.01:
            # No engine looks for it: refused.
            thread.stop = self._dice.choice([("",), ("a",) * 65])
        elif self._dice.random() < 0.3:
            thread.stop = (chr(97 + self._dice.randrange(26)),)
        self._threads.append(thread)
        self._ask(thread)

    def _later(self, after_s: float, call: Callable[[], None]) -> None:
        self._process.later(after_s, lambda: None if self.is_over else call())

    # one call

    def _ask(self, thread: Thread, again: bool = False) -> None:
        if self.is_over:
            return
        sim = self._process.sim
        thread.number, thread.heard, thread.connection = thread.number + 1, "", None
        thread.tries += 1
        number, request = thread.number, thread.request(self._execution, self._life)
        if not again and isinstance(request, Arrived):
            sim.watch.asks(self._execution, request.request_hash)
        gateway = sim.network.peer_at(self._gateway, self._process.attempt)
        if gateway is None or sim.network.is_cut(self._process.name, gateway.name):
            self._later(_RETRY_S, lambda: self._ask_again(thread, number))
            return
        world = gateway.world
        assert isinstance(world, GatewayWorld)

        def arrive() -> None:
            if self.is_over or thread.number != number:
                return
            thread.connection = world.take(request, self._process, lambda kind, what: self._hear(thread, number, kind, what))

        gateway.later(sim.kernel.rng.uniform(0.0005, 0.003), arrive)
        gateway.on_death.append(lambda: self._later(0.05, lambda: self._lost(thread, number)))
        if thread.patience and self._dice.random() < 0.12:
            thread.patience -= 1
            self._later(self._dice.uniform(0.05, 1.5), lambda: self._lose_patience(thread, number))

    def _ask_again(self, thread: Thread, number: int) -> None:
        if thread.number == number:
            self._ask(thread, again=True)

    def _lost(self, thread: Thread, number: int) -> None:
        """The connection broke before an answer."""
        if thread.number == number:
            thread.number += 1
            again = thread.number
            self._later(_RETRY_S, lambda: self._ask_again(thread, again))

    def _lose_patience(self, thread: Thread, number: int) -> None:
        if thread.number != number:
            return
        self._leave(thread)
        thread.number += 1
        again = thread.number
        self._later(self._dice.choice([0.01, 0.3, 1.0, 3.0]), lambda: self._ask_again(thread, again))

    def _leave(self, thread: Thread) -> None:
        connection, thread.connection = thread.connection, None
        gateway = self._process.sim.network.peer_at(self._gateway, self._process.attempt)
        if connection is None or connection.is_over or gateway is None:
            return
        connection.is_closed = True
        world = gateway.world
        if world.connections.get(connection.conn) is connection:
            gateway.later(self._process.sim.kernel.rng.uniform(0.0005, 0.003), lambda: world.closed(connection))

    def _leave_open(self, thread: Thread) -> None:
        if thread.open is not None:
            thread.connection, thread.open = thread.open, None
            self._leave(thread)

    def _hear(self, thread: Thread, number: int, kind: str, what: Any) -> None:
        if self.is_over or thread.number != number:
            return
        if thread.about is not About.nothing:
            self._learned(thread, kind, what)
        elif kind == "text":
            thread.heard += what
            if thread.role == "main" and thread.regrets and thread.connection is not None and self._dice.random() < 0.06:
                self._regret(thread, thread.connection.call)
        elif kind == "answer":
            self._answered(thread, what)
        else:
            self._refused(thread, *what)

    def _refused(self, thread: Thread, status: int, code: str) -> None:
        thread.connection = None
        if not thread.previous.endswith("/999"):
            self._process.sim.watch.refused(self._execution, status, code)
        if code == "cancelled":
            self._rephrase(thread)
        elif status in (400, 404):
            self.end(False)
        else:
            self._lost(thread, thread.number)

    def _answered(self, thread: Thread, reply: Reply) -> None:
        thread.connection, thread.number = None, thread.number + 1
        answer = reply.answer
        text = answer.content
        if not text.startswith(thread.heard):
            raise Violation(f"{reply.call}: the client heard {thread.heard!r}, the answer is {text!r}")
        self._process.sim.watch.answered(reply.call, text, tuple(call.id for call in answer.tool_calls))
        if thread.previous:
            self._process.sim.watch.continued(reply.call, thread.previous)
        thread.messages.append(Message(role="assistant", content=text, tool_calls=answer.tool_calls))
        thread.turns_left -= 1
        earlier = thread.previous
        if thread.stores:
            thread.previous, thread.num_known = reply.call, len(thread.messages)
        if thread.turns_left <= 0:
            thread.then()
            return
        if answer.tool_calls:
            thread.messages += [Message(role="tool", content="ok", tool_call_id=call.id) for call in answer.tool_calls]
        else:
            thread.messages.append(Message(role="user", content=f"go on {thread.turns_left}"))
        if thread.stores and self._dice.random() < 0.3:
            thread.inquire(About.answer, reply.call)
            self._later(0.02, lambda: self._ask(thread))
        elif thread.role == "main" and earlier and self._dice.random() < 0.5:
            # What goes on from it is kept all the same.
            thread.inquire(About.forget, earlier)
            self._later(0.02, lambda: self._ask(thread))
        else:
            self._go_on(thread)

    # about stored answers

    def _learned(self, thread: Thread, kind: str, what: Any) -> None:
        """Of what the thread asked about a call."""
        if kind == "error" and what[0] not in (400, 404):
            self._refused(thread, *what)
            return
        about, call = thread.about, thread.call
        thread.about, thread.connection, thread.number = About.nothing, None, thread.number + 1
        match about, kind:
            case About.answer, "answer":
                self._looked_back(thread, call, what)
            case About.forget, "confirm":
                self._process.sim.counts["forgotten"] += 1
                thread.inquire(About.gone, call)
                self._later(0.02, lambda: self._ask(thread))
            case About.forget, "error" if thread.tries > 1:
                # It was done, and the confirmation lost.
                self._go_on(thread)
            case About.gone, "error":
                self._go_on(thread)
            case About.cancel, "confirm" if self._dice.random() < 0.3:
                # Its client asks again by itself, as if nothing were.
                self._leave_open(thread)
                self._ask(thread, again=True)
            case About.cancel, "confirm":
                self._process.sim.watch.cancelled(call)
                self._rephrase(thread)
            case About.cancel, "error" if what[1] == "already_ended":
                self._leave_open(thread)
                self._ask(thread, again=True)
            case _:
                raise Violation(f"{call}: asked about {about.value}, told {kind} {what}")

    def _looked_back(self, thread: Thread, call: str, reply: Reply) -> None:
        """A stored answer once more: the same."""
        if reply.echo != thread.echo:
            raise Violation(f"{call}: {reply.echo} comes back with it")
        said = next(message for message in reversed(thread.messages) if message.role == "assistant")
        if (reply.call, reply.answer.content, reply.answer.tool_calls) != (call, said.content, said.tool_calls):
            raise Violation(f"{call}: {reply.answer} is fetched, {said} was given")
        self._go_on(thread)

    def _regret(self, thread: Thread, call: str) -> None:
        """Cancel the call that is being answered, with its connection open or not."""
        thread.regrets -= 1
        if self._dice.random() < 0.5:
            self._leave(thread)
        thread.open = thread.connection
        thread.number += 1
        thread.inquire(About.cancel, call)
        self._later(self._dice.choice([0.0, 0.0, 3.0]), lambda: self._ask(thread))

    def _rephrase(self, thread: Thread) -> None:
        thread.number += 1
        thread.messages.append(Message(role="user", content="rather this"))
        self._later(0.02, lambda: self._ask(thread))

    def _go_on(self, thread: Thread) -> None:
        chance = self._dice.random()
        pause = self._dice.uniform(0.02, 0.6)
        if thread.role == "main" and chance < 0.3:
            self._delegate(thread)
        elif thread.role == "main" and chance < 0.45:
            self._compact(thread)
        else:
            self._later(pause, lambda: self._ask(thread))

    def _delegate(self, thread: Thread) -> None:
        """Two sub-agents at once, now and then with the very same task."""
        same = self._dice.random() < 0.4
        thread.children = 2

        def back() -> None:
            thread.children -= 1
            if not thread.children:
                self._later(0.01, lambda: self._ask(thread))

        for place in range(2):
            task = "help" if same else f"help {place}"
            self._spawn("sub_agent", [Message(role="user", content=task)], self._dice.randint(1, 2), back)

    def _compact(self, thread: Thread) -> None:
        def back() -> None:
            thread.messages = [thread.messages[0], Message(role="user", content="summary")]
            thread.previous, thread.num_known = "", 0
            self._later(0.01, lambda: self._ask(thread))

        self._spawn("compaction", [*thread.messages, Message(role="user", content="summarise")], 1, back)
