"""A kind world around the batch machine: real cell machines, every action ends well after a fixed time, no message is lost.

For tests of what the batch machine does when all goes well; faults are the simulation's business.
"""

import heapq
from collections.abc import Callable
from typing import Any

from gyre_hpc.config.schema import SchedulerConfig
from gyre_hpc.machines.base import (
    CancelTimer,
    Finished,
    Input,
    Machine,
    Note,
    Persist,
    Persisted,
    Received,
    Restarted,
    Send,
    SetTimer,
    Start,
    Stop,
    TimerFired,
)
from gyre_hpc.machines.batch import BatchMachine, BatchSettings
from gyre_hpc.machines.batch import actions as batch_actions
from gyre_hpc.machines.cell import CellMachine, CellSettings
from gyre_hpc.machines.cell import actions as cell_actions
from gyre_hpc.machines.membership import Membership
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.supervision import Directory, Entry, FinishRun, Register
from gyre_hpc.protocol.to_batch import (
    Ended,
    FirstCall,
    GatewayReport,
    HandIn,
    KvFacts,
    MicroBatchFacts,
    Moved,
    RankMemory,
    RunnerReport,
    ScoreState,
)
from gyre_hpc.protocol.to_gateway import Table
from gyre_hpc.protocol.to_runner import Assignment
from gyre_hpc.scheduler.migration import Conversation

DELAY_S = 0.002


class BatchWorld:
    """Runs until the machine asks for the end of the run, or `limit_s` of simulated time."""

    def __init__(
        self,
        *,
        scheduler: SchedulerConfig,
        cells: int = 3,
        updates: int = 3,
        groups: int = 4,
        size: int = 2,
        evals: int = 4,
        kv: KvFacts | None = None,
        fails: Callable[[str], bool] = lambda execution: False,
        **more: Any,
    ) -> None:
        """kv: what every cell says of its KV; each has some of every execution that runs. fails: executions that end as infra_error, without
        a call."""
        self.fails = fails
        self.kv = kv or KvFacts()
        self.given: list[tuple[str, cell_actions.MoveKv]] = []
        """What cells gave away."""
        self.tables: list[Table] = []
        self.now = 0.0
        self.notes: list[tuple[float, str, dict[str, Any]]] = []
        self.finished: FinishRun | None = None
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._ordinal = 0
        self._timers: dict[tuple[str, str], int] = {}
        self._stores: dict[str, set[Version]] = {}
        self._held: dict[str, list[tuple[int, HandIn]]] = {}
        self._assignment = Assignment(0)
        self._ended: dict[str, Ended] = {}
        self._running: set[str] = set()
        self._table = Table(-1, 0.0)
        self._facts: list[FirstCall] = []
        self._first_fact = 0
        self._seq = 0
        names = tuple(f"cell-{i}" for i in range(cells))
        settings = BatchSettings(
            cells=names, gateways=("gateway-0",), runners=("runner-0",), core=names[0], controller_url="http://controller", attempt=1,
            incarnation=1, updates=updates, groups_per_batch=groups, group_size=size, scheduler=scheduler, eval_tasks=evals,
            kv_budget_s=2.0, **more,
        )  # fmt: skip
        self.batch = BatchMachine(settings, Membership(Register("controller", 1, "http://controller", 1)), "secret")
        self.machines: dict[str, Machine] = {"controller": self.batch}
        for name in names:
            cell = CellSettings(name=name, incarnation=1, engine_url=f"http://{name}", snapshot_url=f"store://{name}")
            self.machines[name] = CellMachine(cell, Register(name, 1, f"http://{name}", 1))
            self._stores[name] = set()
            self._held[name] = []
        entries = tuple(Entry(name, 1, f"http://{name}") for name in (*names, "gateway-0", "runner-0"))
        for name in self.machines:
            self.tell(name, Restarted(), 0.0)
        self.tell("controller", Received("supervisor-0", Directory(1, entries)), 0.01)
        self._at(0.02, self._report)

    def run(self, limit_s: float = 300.0) -> None:
        while self._queue and self.finished is None and self.now < limit_s:
            self.now, _, call = heapq.heappop(self._queue)
            call()

    def kinds(self, kind: str) -> list[dict[str, Any]]:
        return [fields for _, name, fields in self.notes if name == kind]

    def _at(self, after_s: float, call: Callable[[], None]) -> None:
        self._ordinal += 1
        heapq.heappush(self._queue, (self.now + after_s, self._ordinal, call))

    def tell(self, name: str, told: Input, after_s: float) -> None:
        self._at(after_s, lambda: self._handle(name, told))

    def _handle(self, name: str, told: Input) -> None:
        if isinstance(told, TimerFired):
            pass
        for effect in self.machines[name].handle(self.now, told):
            self._carry_out(name, effect)

    def _carry_out(self, name: str, effect: Any) -> None:
        match effect:
            case Send(to=to, message=message):
                self._send(name, to, message)
            case SetTimer(key=key, after_s=after_s):
                self._ordinal += 1
                mark = self._ordinal
                self._timers[name, key] = mark
                self._at(after_s, lambda: self._handle(name, TimerFired(key)) if self._timers.get((name, key)) == mark else None)
            case CancelTimer(key=key):
                self._timers.pop((name, key), None)
            case Persist(key=key):
                self.tell(name, Persisted(key), DELAY_S)
            case Start(key=key, action=action):
                # What it changes in the world happens when it ends.
                self._at(DELAY_S, lambda: self._handle(name, Finished(key, self._act(name, action))))
            case Note(kind=kind, fields=fields):
                self.notes.append((self.now, kind, dict(fields)))
            case Stop():
                pass

    def _send(self, sender: str, to: str, message: Any) -> None:
        if isinstance(message, FinishRun):
            self.finished = message
        elif isinstance(message, Assignment) and message.number > self._assignment.number:
            self._assignment = message
            for id in message.acked:
                self._ended.pop(id, None)
            for begin in message.begin:
                if begin.execution not in self._running and begin.execution not in self._ended:
                    self._begin(begin.execution)
        elif isinstance(message, Table) and message.number >= self._table.number:
            self._table = message
            self.tables.append(message)
            while self._facts and self._first_fact <= message.acked:
                del self._facts[0]
                self._first_fact += 1
        elif to in self.machines:
            self.tell(to, Received(sender, message), DELAY_S)

    def _begin(self, id: str) -> None:
        self._running.add(id)
        if self._table.rows and not self.fails(id):
            self._facts.append(FirstCall(id, self._table.rows[0].version))
        length = 0.3 + (hash(id) % 17) / 17

        def end() -> None:
            self._running.discard(id)
            if self.fails(id):
                self._ended[id] = Ended(id, ScoreState.infra_error, None, reason=f"no sandbox for {id}")
                return
            score = (len(id) * 7 + ord(id[-1])) % 3 / 2
            self._ended[id] = Ended(id, ScoreState.scored, score, score == 1.0)

        self._at(length, end)

    def _report(self) -> None:
        self._seq += 1
        gateway = GatewayReport("gateway-0", 1, self._seq, self._table.number, self._first_fact, tuple(self._facts))
        runner = RunnerReport(
            "runner-0", 1, self._seq, self._assignment.number, tuple(sorted(self._running)), (), tuple(self._ended.values()), 8
        )
        self._handle("controller", Received("gateway-0", gateway))
        self._handle("controller", Received("runner-0", runner))
        self._at(0.05, self._report)

    def _act(self, name: str, action: Any) -> Any:
        store = self._stores.get(name, set())
        match action:
            case batch_actions.PrepareGroup(update=update, first_ordinal=ordinal):
                num = sum(not self.fails(ended.execution) for ended in action.ended)
                entries = tuple(batch_actions.MicroBatchEntry(f"{update}:{ordinal + i}", 1000, 100) for i in range(2 if num else 0))
                return batch_actions.PreparedGroup(entries, num, 1, 200 if num else 0)
            case (
                cell_actions.InitModel(version=version)
                | cell_actions.LoadCheckpoint(version=version)
                | cell_actions.PullSnapshot(version=version)
            ):
                store.add(version)
            case cell_actions.SleepEngine() | cell_actions.WakeEngine() | cell_actions.SleepTrainer() | cell_actions.WakeTrainer():
                return (RankMemory(0, 1, 1),)
            case cell_actions.AbortLive() | cell_actions.QuietKv():
                return 0
            case cell_actions.ListConversations():
                return tuple(Conversation(call=f"{id}/0", num_tokens=100, is_live=True) for id in sorted(self._running))
            case cell_actions.MoveKv(moves=moves):
                self.given.append((name, action))
                return cell_actions.MoveResult(moved=tuple(Moved(move.call, move.cell) for move in moves), num_tokens=100, seconds=0.001)
            case cell_actions.Accumulate(id=id):
                return MicroBatchFacts(id, 0.1, 100, 0.0, 100, 1.0, 0)
            case cell_actions.HostGroup():
                return "127.0.0.1:1"
            case cell_actions.HandInSum(url=url, update=update, hand_in=hand_in):
                self._held[url.removeprefix("store://")].append((update, hand_in))
            case cell_actions.Apply(ask=ask):
                store.add(ask.version)
                return {"grad_norm": 1.0}
            case cell_actions.Measure(update=update):
                held = tuple(hand_in for u, hand_in in self._held[name] if u == update)
                return cell_actions.Figures(snapshots=tuple(sorted(store)[-2:]), held=held, kv=self.kv)
        return None
