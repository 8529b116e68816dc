"""A gateway machine in a world without sockets: engines, disk and clients are a few lists, and every delay is somebody's choice.

Checked after every step: tokens are journaled once and in order, attempts go on exactly where the tokens end, text leaves only
when it is durable. Engines are counter-based: the token at a position depends on the call's sampling key alone.
"""

from typing import Any

import msgspec

from gyre_hpc.chat.base import ChatFormat
from gyre_hpc.machines.base import (
    CancelTimer,
    Effect,
    Failed,
    Finished,
    Input,
    Note,
    Persist,
    Persisted,
    Progressed,
    Received,
    Restarted,
    Send,
    SetTimer,
    Start,
    Stop,
    TimerFired,
)
from gyre_hpc.machines.call import GatewayMachine
from gyre_hpc.machines.call.actions import (
    CLIENTS,
    Arrived,
    AttemptEnd,
    Cancel,
    Confirm,
    EngineAttempt,
    Forget,
    HangUp,
    KeepAlive,
    Left,
    MeasureCpu,
    Parse,
    Refuse,
    Render,
    Reply,
    Retrieve,
    Say,
)
from gyre_hpc.machines.call.turns import digest, digest_turns
from gyre_hpc.protocol.journal import Record
from gyre_hpc.protocol.tensors import pack_ids, unpack_ids
from gyre_hpc.protocol.to_gateway import Row, Table
from tests.fakes.call_checks import CallChecks
from tests.fakes.call_parts import FORMAT, STOP, Client, settings, tokens_at


class CallWorld(CallChecks):
    """Deliver effects yourself: `actions`, `writes` and `timers` hold what is pending."""

    def __init__(self, **changed: Any) -> None:
        self.settings = settings(**changed)
        self.now = 0.0
        self.journal: list[Record] = []
        self.clients: list[Client] = []
        self.notes: list[Note] = []
        self.reports: list[Any] = []
        self.num_conns = self.table = 0
        self.over: list[tuple[str, EngineAttempt]] = []
        """Attempts that ended or were stopped: their words may still come."""
        self.rows: tuple[Row, ...] = ()
        self.scripts: dict[str, list[int]] = {}
        """Output of some calls; others are drawn."""
        self.format: ChatFormat = FORMAT
        self.confirmed: list[str] = []
        self.refusals: list[Refuse] = []
        self._begin(())

    def _begin(self, records: tuple[Record, ...]) -> None:
        self.machine = GatewayMachine(self.settings)
        self.actions: dict[str, Any] = {}
        self.given: dict[str, int] = {}
        """Tokens an attempt has given."""
        self.writes: list[tuple[str, Record]] = []
        self.timers: dict[str, float] = {}
        self.said: dict[str, str] = {}
        self.asking: set[str] = set()
        """Connections that asked about a stored answer and heard nothing yet."""
        self.tell(Restarted(records))

    def tell(self, told: Input) -> None:
        for effect in self.machine.handle(self.now, told):
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Send(message=message):
                self.reports.append(message)
            case SetTimer(key=key, after_s=after_s):
                self.timers[key] = self.now + after_s
            case CancelTimer(key=key):
                self.timers.pop(key, None)
            case Persist(key=key, record=record):
                self.writes.append((key, record))
            case Start(key=key, action=action):
                assert key not in self.actions
                self.actions[key] = action
                self._check_start(action)
            case Stop(key=key):
                self._gone(key)
            case Note():
                self.notes.append(effect)

    # --- what the world can do -------------------------------------------------------------------------------------------

    def arrive(self, client: Client) -> None:
        self.num_conns += 1
        client.conn, client.got = f"c{self.num_conns}", ""
        turns = digest_turns(client.messages)
        identity = digest(client.execution.encode(), client.thread.encode(), *(turn.digest for turn in turns)).hex()
        arrived = Arrived(
            conn=client.conn, execution=client.execution, role="main", thread=client.thread, request_hash=identity,
            messages=tuple(client.messages), turns=turns, stream=client.stream,
        )  # fmt: skip
        self.tell(Received(CLIENTS, msgspec.structs.replace(arrived, **client.asks)))

    def inquire(self, kind: type[Retrieve | Forget | Cancel], call: str) -> None:
        """Somebody asks about an answer given before."""
        self.num_conns += 1
        conn = f"q{self.num_conns}"
        self.asking.add(conn)
        self.tell(Received(CLIENTS, kind(conn, call.rpartition("/")[0], call)))

    def leave(self, client: Client) -> None:
        conn, client.conn = client.conn, ""
        self.tell(Received(CLIENTS, Left(conn)))

    def set_table(self, *rows: Row, ended: tuple[str, ...] = (), acked: int = -1, moved: tuple[tuple[str, str], ...] = ()) -> None:
        self.table += 1
        self.rows = rows
        self.tell(Received("controller", Table(self.table, 5.0, rows, ended=ended, acked=acked, moved=moved)))

    def write(self, num: int) -> None:
        """The disk takes the oldest `num` records."""
        for _ in range(num):
            key, record = self.writes.pop(0)
            self.journal.append(record)
            self.check_journal()
            self.tell(Persisted(key))

    def fail_writes(self) -> None:
        failed, self.writes = self.writes, []
        for key, _ in failed:
            self.tell(Failed(key, "StorageFull", "disk full"))

    def others(self) -> list[str]:
        """Actions that are no attempts and can end now: words to one client are written in order."""
        spoken: set[str] = set()
        found = []
        for key, action in self.actions.items():
            conn = getattr(action, "conn", None)
            if not isinstance(action, EngineAttempt) and conn not in spoken:
                found.append(key)
            if conn is not None:
                spoken.add(conn)
        return found

    def finish(self, key: str) -> None:
        """An action that is no attempt ends well."""
        action = self.actions.pop(key)
        if isinstance(action, Reply | Refuse | Confirm):
            self.asking.discard(action.conn)
        match action:
            case Render(ended=None):
                self.tell(Finished(key, pack_ids(self.format.render(action.messages, action.tools))))
            case Render():
                suffix = self.format.render_suffix(action.messages, ended=action.ended, thought=action.thought)
                self.tell(Finished(key, pack_ids(suffix)))
            case Parse(ids=ids):
                self.tell(Finished(key, self.format.parse(unpack_ids(ids).tolist(), stop=action.stop, partial=action.partial)))
            case MeasureCpu():
                self.tell(Finished(key, 1.5))
            case Say(conn=conn, text=text):
                self._of(conn).got += text
                self.tell(Finished(key))
            case KeepAlive():
                self.tell(Finished(key))
            case Reply(conn=conn):
                self._of(conn).take(action)
                self.tell(Finished(key))
            case Refuse(conn=conn):
                self.refusals.append(action)
                self._of(conn).refuse(action.code)
                self.tell(Finished(key))
            case HangUp():
                self.tell(Finished(key))
            case Confirm(conn=conn):
                self.confirmed.append(conn)
                self.tell(Finished(key))

    def give(self, key: str, num: int) -> None:
        """An attempt gives up to `num` tokens."""
        action: EngineAttempt = self.actions[key]
        left = self.remaining(key)[:num]
        if left:
            start = action.position + self.given.get(key, 0)
            self.given[key] = self.given.get(key, 0) + len(left)
            self.tell(Progressed(key, tokens_at(start, left, action.version)))

    def remaining(self, key: str) -> list[int]:
        """What an attempt would still sample."""
        action, given = self.actions[key], self.given.get(key, 0)
        ids: list[int] = []
        if given and self.token(action, action.position + given - 1) == STOP:
            return ids
        for position in range(action.position + given, action.position + action.max_new_tokens):
            ids.append(self.token(action, position))
            if ids[-1] == STOP:
                break
        return ids

    def token(self, action: EngineAttempt, position: int) -> int:
        """What a call has at a position."""
        return self.drawn(action.call, action.sampling.key, position)

    def complete(self, key: str) -> None:
        """An attempt gives all it has and ends."""
        self.give(key, 1000)
        action = self.actions[key]
        last = action.position + self.given.get(key, 0) - 1
        self._gone(key)
        self.tell(Finished(key, AttemptEnd("stop" if self.token(action, last) == STOP else "length")))

    def abort(self, key: str, moved_to: str = "") -> None:
        self._gone(key)
        self.tell(Finished(key, AttemptEnd("abort", moved_to=moved_to)))

    def fail(self, key: str, kind: str) -> None:
        self._gone(key)
        self.tell(Failed(key, kind, "trouble"))

    def late_word(self, place: int) -> None:
        """An attempt that is over speaks once more."""
        key, action = self.over[place]
        self.tell(Progressed(key, tokens_at(action.position, [self.token(action, action.position)], action.version)))

    def fire_next(self) -> None:
        """Let time pass until the next timer."""
        key = min(self.timers, key=lambda key: (self.timers[key], key))
        self.now = max(self.now, self.timers.pop(key))
        self.tell(TimerFired(key))

    def crash(self, survive: int) -> None:
        """kill -9; the oldest `survive` writes under way were durable already."""
        self.journal += [record for _, record in self.writes[:survive]]
        self.check_journal()
        for client in self.clients:
            client.conn = ""
        self.over = []
        self._begin(tuple(self.journal))
        self.tell(Received("controller", Table(self.table, 5.0, self.rows)))

    def settle(self, limit: int = 20000, records: int = 1 << 30) -> None:
        """Everything works and every agent goes on until it has all its answers, or the journal has that many records."""
        for _ in range(limit):
            if len(self.journal) >= records or not self.settle_step():
                return
        raise AssertionError("the world does not come to rest")

    def settle_step(self) -> bool:
        """One thing that works; False when there is nothing left to do."""
        if self.writes:
            self.write(1)
        elif others := self.others():
            self.finish(others[0])
        elif attempts := list(self.actions):
            self.complete(attempts[0])
        elif waiting := [client for client in self.clients if client.wants]:
            self.arrive(waiting[0])
        elif any(client.conn for client in self.clients):
            self.fire_next()
        else:
            return False
        return True

    def _gone(self, key: str) -> None:
        action = self.actions.pop(key, None)
        if isinstance(action, EngineAttempt):
            self.over.append((key, action))

    def _of(self, conn: str) -> Client:
        """Who waits there; a stranger when nobody does any more."""
        return next((client for client in self.clients if client.conn == conn), Client("", "", 0, False))
