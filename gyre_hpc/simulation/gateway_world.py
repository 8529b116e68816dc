"""What a gateway shard's actions do: engines over wires, clients over wires, a chat format of three ids a message."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from gyre_hpc.machines.base import Received
from gyre_hpc.machines.call import actions
from gyre_hpc.machines.call.actions import CLIENTS, Arrived, Cancel, Forget, Left, Retrieve
from gyre_hpc.protocol.tensors import unpack_ids
from gyre_hpc.simulation.engine import Request, Word
from gyre_hpc.simulation.network import Wire
from gyre_hpc.simulation.process import ActionFailed, Process, Running
from gyre_hpc.simulation.tokens import parse, render, render_suffix

_CONNECT_S = 5.0


@dataclass(slots=True, eq=False)
class Connection:
    """A client's connection as the gateway's side sees it."""

    conn: str
    execution: str
    client: Process
    wire: Wire
    hear: Callable[[str, Any], None]
    """(`text` | `answer` | `confirm` | `error`, what) at the client."""
    is_closed: bool = False
    """The client closed its end, whether or not the machine was told."""
    is_over: bool = False
    call: str = ""
    """That speaks on it."""
    silent_at: float = 0.0
    """When the words under way on it are written: later ones wait for them, as in gateway/connections.py."""


class GatewayWorld:
    def __init__(self, process: Process) -> None:
        self.process, self.sim = process, process.sim
        self.connections: dict[str, Connection] = {}
        self._numbers = itertools.count()
        process.on_death.append(self._gone)

    def handlers(self) -> dict[type, Any]:
        return {
            actions.EngineAttempt: self._attempt, actions.Render: self._render, actions.Parse: self._parse, actions.MeasureCpu: self._cpu,
            actions.KeepAlive: self._keep_alive, actions.Say: self._say, actions.Reply: self._reply, actions.Refuse: self._refuse,
            actions.Confirm: self._confirm,
            actions.HangUp: self._hang_up,
        }  # fmt: skip

    def _gone(self) -> None:
        for connection in self.connections.values():
            connection.wire.push(connection.client, partial(connection.hear, "error", (0, "connection reset")))

    # clients

    def take(self, request: Arrived | Retrieve | Forget | Cancel, client: Process, hear: Callable[[str, Any], None]) -> Connection:
        """A request arrived; closed connections of its execution are told of first, as gateway/surface.py does."""
        for known in list(self.connections.values()):
            if known.execution == request.execution and known.is_closed:
                self._left(known)
        conn = f"c{next(self._numbers)}"
        connection = Connection(conn, request.execution, client, Wire(self.sim, self.process.name, client.name), hear)
        self.connections[conn] = connection
        self.process.tell(Received(CLIENTS, msgspec.structs.replace(request, conn=conn)))
        return connection

    def closed(self, connection: Connection) -> None:
        """The client's end is closed; this side hears of it now."""
        connection.is_closed = True
        self._left(connection)

    def _left(self, connection: Connection) -> None:
        if self.connections.pop(connection.conn, None) is not None and not connection.is_over:
            self.process.tell(Received(CLIENTS, Left(connection.conn)))

    def _open(self, conn: str) -> Connection:
        connection = self.connections.get(conn)
        if connection is None or connection.is_closed or connection.is_over:
            raise ActionFailed("ClientGone", conn)
        return connection

    def _say(self, running: Running, action: actions.Say) -> None:
        self.sim.watch.says(self.process, action)

        def work() -> None:
            connection = self._open(action.conn)
            connection.call = action.call
            connection.wire.push(connection.client, lambda: connection.hear("text", action.text))

        self._speak(running, action.conn, 0.0002, work)

    def _keep_alive(self, running: Running, action: actions.KeepAlive) -> None:
        self._speak(running, action.conn, 0.0002, lambda: self._open(action.conn) and None)

    def _reply(self, running: Running, action: actions.Reply) -> None:
        self.sim.watch.replies(self.process, action)
        self._last_words(running, action.conn, "answer", action)

    def _refuse(self, running: Running, action: actions.Refuse) -> None:
        self._last_words(running, action.conn, "error", (action.status, action.code))

    def _hang_up(self, running: Running, action: actions.HangUp) -> None:
        def work() -> None:
            connection = self._open(action.conn)
            connection.wire.push(connection.client, partial(connection.hear, "error", (0, "connection reset")))
            self._left(connection)

        running.end_after(0.0, work)

    def _confirm(self, running: Running, action: actions.Confirm) -> None:
        self._last_words(running, action.conn, "confirm", None)

    def _last_words(self, running: Running, conn: str, kind: str, what: Any) -> None:
        def work() -> None:
            connection = self._open(conn)
            connection.is_over = True
            del self.connections[conn]
            connection.wire.push(connection.client, lambda: connection.hear(kind, what))

        self._speak(running, conn, 0.0004, work)

    def _speak(self, running: Running, conn: str, for_s: float, work: Callable[[], Any]) -> None:
        """One after the other on each connection."""
        now, connection = self.sim.kernel.now, self.connections.get(conn)
        begins_at = max(now, connection.silent_at) if connection is not None else now
        if connection is not None:
            connection.silent_at = begins_at + for_s + running.extra_s
        running.end_after(begins_at - now + for_s, work)

    # chat format

    def _render(self, running: Running, action: actions.Render) -> None:
        ended = action.ended
        self.sim.watch.renders(self.process, running.key, action)
        running.end_after(0.0002, lambda: render(action.messages) if ended is None else render_suffix(action.messages, ended))

    def _parse(self, running: Running, action: actions.Parse) -> None:
        running.end_after(0.0002, lambda: parse(unpack_ids(action.ids).tolist(), action.stop))

    def _cpu(self, running: Running, action: actions.MeasureCpu) -> None:
        running.end_after(0.0001, lambda: 0.0)

    # engines

    def _attempt(self, running: Running, action: actions.EngineAttempt) -> None:
        sim, gateway = self.sim, self.process
        sim.watch.attempts(gateway, action)
        there, back = Wire(sim, gateway.name, action.cell), Wire(sim, action.cell, gateway.name)
        gateway.later(action.deadline_s, lambda: running.fail("CellLost", "deadline"))
        if sim.network.is_cut(gateway.name, action.cell):
            gateway.later(_CONNECT_S, lambda: running.fail("CellLost", "no connection"))
            return
        cell = sim.network.peer_at(action.url, gateway.attempt)
        if running.must_fail == "after":
            gateway.later(0.001, lambda: running.fail("RequestRefused", "no such thing"))
            return
        if cell is None or running.must_fail:
            gateway.later(0.001, lambda: running.fail("CellLost", "connection refused"))
            return
        taken: list[Request] = []

        def say(word: Word) -> None:
            back.push(gateway, lambda: _hear(running, word))

        def arrive() -> None:
            request = cell.world.engine.submit(action, say)
            if request is not None:
                taken.append(request)

        def drop() -> None:
            for request in taken:
                cell.world.engine.drop(request)

        def leave() -> None:
            there.push(cell, drop)

        def refused() -> None:
            back.push(gateway, lambda: running.fail("CellLost", "connection reset"))

        there.open(cell, arrive)
        running.on_stop = leave
        gateway.on_death.append(leave)
        cell.on_death.append(refused)


def _hear(running: Running, word: Word) -> None:
    kind, what = word
    if kind == "tokens":
        running.progress(what)
    elif kind == "end":
        running.finish(what)
    else:
        running.fail(*what)
