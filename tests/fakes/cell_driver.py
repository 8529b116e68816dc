"""Plays the shell of a cell machine: holds what is in flight, keeps the physical truth, and checks it at every effect."""

from typing import Any

from gyre_hpc.machines.base import (
    CancelTimer,
    Effect,
    Failed,
    Finished,
    Input,
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
from gyre_hpc.machines.cell import CellMachine, CellSettings
from gyre_hpc.machines.cell.actions import (
    AbortLive,
    AbortReduce,
    Accumulate,
    Action,
    AppliedRecord,
    Apply,
    CloseAdmission,
    FetchMicroBatch,
    Figures,
    Fit,
    HandInSum,
    HostGroup,
    InitModel,
    ListConversations,
    LoadCheckpoint,
    Measure,
    MoveKv,
    MoveResult,
    OpenAdmission,
    PullSnapshot,
    QuietKv,
    Reduce,
    SaveCheckpoint,
    SleepEngine,
    SleepTrainer,
    UpdateEngineWeights,
    WakeEngine,
    WakeTrainer,
    ZeroSum,
    step_name,
)
from gyre_hpc.machines.cell.body import MOVES
from gyre_hpc.protocol.identity import Role, Version
from gyre_hpc.protocol.supervision import Register
from gyre_hpc.protocol.to_batch import CellReport, CellState, MicroBatchFacts, Moved, RankMemory
from gyre_hpc.protocol.to_cell import Lease, Order
from tests.fakes.cell_body import Body

BEATS = ("heartbeat", "register")
V0, V1 = Version(0, 0), Version(0, 1)


def facts(id: str) -> MicroBatchFacts:
    return MicroBatchFacts(id=id, seconds=0.5, num_targets=10, max_logprob_gap=0.0, num_on_policy=10, loss_sum=0.1, clipped=0)


def leases(*ids: str) -> tuple[Lease, ...]:
    return tuple(Lease(id, f"http://controller/micro_batches/{id}", 100) for id in ids)


class CellDriver:
    """Feeds one machine. `ran` lists finished steps by name; `reports` everything that was sent to the controller."""

    def __init__(self, settings: CellSettings | None = None, records: tuple[Any, ...] = ()) -> None:
        self.settings = settings or CellSettings(name="cell-0", incarnation=1)
        self.machine = CellMachine(self.settings, Register(self.settings.name, self.settings.incarnation, "http://cell", 7))
        self.now, self.seq = 0.0, 0
        self.body = Body()
        self.timers: dict[str, float] = {}
        self.running: dict[str, Action | AppliedRecord] = {}
        self.ran: list[str] = []
        self.reports: list[CellReport] = []
        self.persisted: list[AppliedRecord] = list(records)
        self.states: list[CellState] = []
        self.notes: list[Note] = []
        self.feed(Restarted(records))

    @property
    def report(self) -> CellReport:
        return self.reports[-1]

    def feed(self, input: Input) -> None:
        for effect in self.machine.handle(self.now, input):
            self._carry_out(effect)

    def order(self, **fields: Any) -> Order:
        self.seq += 1
        order = Order(**{"seq": self.seq, "term": 1, "role": Role.rollout} | fields)
        self.give(order)
        return order

    def give(self, order: Order) -> None:
        self.feed(Received(self.settings.controller, order))

    def finish(self, kind: type, result: Any = None) -> None:
        """The oldest action of this kind in flight ends well."""
        self.end(self.key_of(kind), result)

    def fail(self, kind: type, reason: str = "made to fail", error: str = "TransferFailed") -> None:
        key = self.key_of(kind)
        self.running.pop(key)
        self.feed(Failed(key, error, reason))

    def key_of(self, kind: type) -> str:
        return next(key for key, action in self.running.items() if isinstance(action, kind))

    def is_running(self, kind: type) -> bool:
        return any(isinstance(action, kind) for action in self.running.values())

    def end(self, key: str, result: Any = None) -> None:
        action = self.running.pop(key)
        natural = self._happen(action)
        if not isinstance(action, Measure | FetchMicroBatch | PullSnapshot | AbortReduce):
            self.ran.append(step_name(action))
        self.now += 0.125
        self.feed(Persisted(key) if isinstance(action, AppliedRecord) else Finished(key, natural if result is None else result))

    def fire(self, key: str) -> None:
        self.now = max(self.now, self.timers.pop(key))
        self.feed(TimerFired(key))

    def beat(self) -> None:
        """One heartbeat with a fresh look at the cell."""
        self.fire("heartbeat")
        if self.is_running(Measure):
            self.finish(Measure)

    def settle(self, beats: int = 3) -> None:
        """Let everything in flight end well, timers of retries too, until nothing is left to do."""
        for _ in range(beats):
            for _ in range(500):
                if self.running:
                    self.end(next(iter(self.running)))
                    continue
                due = [key for key in self.timers if key not in BEATS and not key.endswith("deadline")]
                if not due:
                    break
                self.fire(min(due, key=lambda key: self.timers[key]))
            else:
                raise AssertionError(f"does not settle: {self.report}")
            self.beat()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Send(message=CellReport() as report):
                self._check_report(report)
                self.reports.append(report)
            case SetTimer(key=key, after_s=after_s):
                self.timers[key] = self.now + after_s
            case CancelTimer(key=key):
                self.timers.pop(key, None)
            case Start(key=key, action=action):
                self._check_start(action)
                assert key not in self.running
                self.running[key] = action
            case Persist(key=key, record=record):
                self.running[key] = record
            case Stop(key=key):
                self.running.pop(key, None)
            case Note():
                self.notes.append(effect)

    def _check_report(self, report: CellReport) -> None:
        assert not self.reports or report.seq > self.report.seq
        if self.states and report.state is not self.states[-1]:
            # One input may end one move and begin the next, so a report may skip a state (the machine checks each move itself).
            near = MOVES[self.states[-1]]
            assert report.state in near.union(*(MOVES[state] for state in near)), f"{self.states[-1]} -> {report.state}"
        if not self.states or report.state is not self.states[-1]:
            self.states.append(report.state)
        if report.applied is not None:
            assert any(record.applied == report.applied for record in self.persisted), "reported before it was persisted"
        if report.commit is not None:
            taken = [id for hand_in in self.body.held for id in hand_in.ids]
            own = [id for id in report.commit.manifest if id not in taken]
            assert own == [fact.id for fact in report.accumulated], "manifest is not what was accumulated"

    def _check_start(self, action: Action) -> None:
        body = self.body
        match action:
            case CloseAdmission() | AbortLive() | UpdateEngineWeights() | OpenAdmission():
                assert body.engine is not None
            case ListConversations() | MoveKv() | QuietKv():
                assert body.engine is not None and body.admission is None
            case SleepEngine():
                assert body.admission is None and body.live == 0 and body.leases == 0
            case WakeEngine(version=version):
                assert body.trainer is None and body.engine is None and version in body.store
            case WakeTrainer(version=version):
                assert body.engine is None and body.admission is None and version in body.store
            case SleepTrainer(keep_sum=keep):
                # After a waking that failed nobody knows whether it sleeps; then there is no sum to keep.
                assert body.trainer is not None or not keep
            case ZeroSum() | Fit():
                assert body.trainer is not None
            case Accumulate(id=id):
                assert body.trainer is not None and id in body.fetched
                assert (*body.sum_at, id) not in body.accumulated, f"{id} twice within {body.sum_at}"
            case Reduce() | Apply():
                assert body.trainer is not None
            case SaveCheckpoint(version=version):
                assert version in body.store

    def _happen(self, action: Action | AppliedRecord) -> Any:
        """The deed itself; returns the result a shell would give."""
        body = self.body
        memory = tuple(RankMemory(rank=rank, free=2, used=1) for rank in range(self.settings.ranks))
        match action:
            case CloseAdmission():
                body.admission = None
            case OpenAdmission(term=term):
                body.admission = term
            case AbortLive():
                body.live = 0
                return 0
            case ListConversations():
                return body.conversations
            case MoveKv(moves=moves):
                body.given.append(action)
                body.leases += 1
                tokens = sum(move.num_tokens for move in moves)
                return MoveResult(moved=tuple(Moved(move.call, move.cell) for move in moves), num_tokens=tokens, seconds=tokens / 1e5)
            case QuietKv():
                body.leases = body.leases if body.is_read else 0
                return body.leases
            case SleepEngine():
                body.engine = None
                return tuple(RankMemory(rank=rank, free=2, used=body.used.get(rank, 1)) for rank in range(self.settings.ranks))
            case WakeEngine(version=version):
                body.engine = version
                return memory
            case UpdateEngineWeights(version=version):
                body.engine = version
            case SleepTrainer(keep_sum=keep):
                body.trainer = None
                body.total = body.total if keep else []
                return memory
            case WakeTrainer(version=version, restore_sum=restore):
                body.trainer = version
                body.total = body.total if restore else []
                body.sum_at = (self.machine.state.total.update, self.machine.state.total.fence)
                return memory
            case PullSnapshot(version=version) | LoadCheckpoint(version=version) | InitModel(version=version):
                body.store.add(version)
            case ZeroSum(update=update, fence=fence):
                body.total, body.sum_at = [], (update, fence)
            case FetchMicroBatch(id=id):
                body.fetched.add(id)
            case Accumulate(id=id):
                body.total.append(id)
                body.accumulated.add((*body.sum_at, id))
                return facts(id)
            case HandInSum(hand_in=hand_in):
                assert tuple(body.total) == hand_in.ids
            case HostGroup():
                return "127.0.0.1:1"
            case Apply(ask=ask):
                assert body.trainer is not None
                body.trainer = ask.version
                body.store.add(ask.version)
                body.applied.append(ask.version)
                return {"grad_norm": 1.0}
            case Fit(version=version):
                body.trainer = version
                body.store.add(version)
                return {"loss": 1.0}
            case SaveCheckpoint(version=version):
                body.checkpoints.add(version)
            case AppliedRecord():
                self.persisted.append(action)
            case Measure():
                return Figures(
                    snapshots=tuple(sorted(body.store)), held=tuple(body.held), pids=(7,), live_requests=body.live, kv=body.kv,
                    tokens=body.tokens, curve=body.curve,
                )  # fmt: skip
        return None


def serving() -> CellDriver:
    """A core that serves its first version under term 1."""
    cell = CellDriver()
    cell.order(term=1, role=Role.rollout, version=V0, is_core=True)
    cell.settle()
    assert cell.report.state is CellState.rollout
    cell.ran.clear()
    return cell
