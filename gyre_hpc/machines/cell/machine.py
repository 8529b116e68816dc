"""The cell machine: compares the newest order with itself and moves towards it, one step at a time.

Invariants (each has a test):
  - engine and trainer are never awake together; admission is open only over an awake engine;
  - the switch takes DESIGN's steps in DESIGN's order; a newer order waits for the running step, then none is skipped;
  - a micro-batch is begun at most once per (update, fence); the manifest is what was accumulated, plus accepted hand-ins;
  - `applied` is persisted before it is reported, and an update is made at most once per manifest;
  - every wait has a deadline or a retry timer, and the report says what it is.
"""

from collections.abc import Iterable
from typing import Any

from gyre_hpc.machines.base import (
    Effect,
    Failed,
    Finished,
    Input,
    Machine,
    Note,
    Persisted,
    Progressed,
    Received,
    Restarted,
    SetTimer,
    Start,
    TimerFired,
)
from gyre_hpc.machines.cell import outcome
from gyre_hpc.machines.cell.actions import (
    AbortReduce,
    Action,
    AppliedRecord,
    Figures,
    LoadCheckpoint,
    Measure,
    MoveKv,
    Reduce,
    SaveCheckpoint,
)
from gyre_hpc.machines.cell.choose import next_step
from gyre_hpc.machines.cell.giving import given_note
from gyre_hpc.machines.cell.report import Reporter, report_of
from gyre_hpc.machines.cell.settings import CellSettings
from gyre_hpc.machines.cell.state import State
from gyre_hpc.machines.cell.steps import DEADLINE, RETRY, Step, Steps
from gyre_hpc.machines.cell.supply import Supply
from gyre_hpc.machines.cell.switch import Done, Wait
from gyre_hpc.machines.cell.timing import Timing
from gyre_hpc.machines.membership import SETTLED_S, Membership
from gyre_hpc.machines.membership import TIMER as REGISTER
from gyre_hpc.protocol.identity import Role
from gyre_hpc.protocol.supervision import Directory, Register
from gyre_hpc.protocol.to_batch import CellReport, CellState
from gyre_hpc.protocol.to_cell import Order

HEARTBEAT, MEASURE, ABORT = "heartbeat", "measure", "abort_reduce"


class CellMachine(Machine):
    """One cell. Its shell starts engine (asleep, admission closed) and snapshot store before the first input."""

    def __init__(self, settings: CellSettings, register: Register) -> None:
        self.state = State(settings=settings)
        self._steps = Steps(retry_s=settings.retry_s, persist_deadline_s=settings.save_deadline_s)
        self._supply = Supply(self.state)
        self._membership = Membership(register, settled_s=SETTLED_S)
        self._reporter = Reporter(settings.controller)
        self._born = False
        self._num_started = 0
        self._measuring = ""
        """Key of the look in progress; empty: none."""
        self._looking_since = 0.0
        self._blind = ""
        """Why the last look failed: a rank that does not answer is named in it."""
        self._put_while_measuring = False
        self._aborting = ""
        """Key of the Reduce that was asked to break off."""

    def handle(self, now: float, input: Input) -> list[Effect]:
        effects = self._be_born(input)
        heartbeat = False
        match input:
            case Received(sender=sender, message=Order() as order) if sender == self.state.settings.controller:
                self._take(now, order)
                effects += self._beat_soon()
            case Received(message=Directory() as directory):
                effects += self._membership.heard(directory)
            case TimerFired(key=key):
                heartbeat = key == HEARTBEAT and bool(self._measuring)
                effects += self._timer(now, key)
            case Finished(key=key) | Failed(key=key) if key == self._measuring:
                effects += self._measured(now, input)
                heartbeat = True
            case Finished(key=key, result=result):
                effects += self._finished(now, key, result)
            case Persisted(key=key):
                effects += self._finished(now, key, None)
            case Failed(key=key, kind=kind, reason=reason):
                effects += self._failed(now, key, f"{kind}: {reason}" if reason else kind)
            case Progressed(key=key, item=share):
                if self._steps.is_running(key):
                    self.state.fit_progress = float(share)
        effects += self._go(now)
        self.state.body.check()
        waiting = self._steps.waiting or self.state.waiting
        broken = self._blind or self._steps.broken
        report = report_of(self.state, waiting=waiting, error=self._steps.error or self._blind or self._supply.trouble, broken=broken)
        return effects + self._say(report, heartbeat)

    def _say(self, report: CellReport, heartbeat: bool) -> list[Effect]:
        was_quiet = self._reporter.quiet_beats > 0
        told = self._reporter.tell(report, heartbeat)
        if not was_quiet or self._reporter.quiet_beats:
            return told
        # Something happens again: what follows from it is looked at soon.
        return [*told, SetTimer(HEARTBEAT, self._heartbeat_s())]

    def _beat_soon(self) -> list[Effect]:
        """An order that changes nothing here is taken for lost until a heartbeat says that it came."""
        if not self._reporter.quiet_beats:
            return []
        self._reporter.quiet_beats = 0
        return [SetTimer(HEARTBEAT, self._heartbeat_s())]

    def _be_born(self, input: Input) -> list[Effect]:
        if self._born:
            return []
        self._born = True
        if isinstance(input, Restarted):
            self._remember(input.records)
        return [*self._membership.beat(), SetTimer(HEARTBEAT, 0.0)]

    def _remember(self, records: Iterable[Any]) -> None:
        """Of a former incarnation only updates count whose checkpoint exists: its memory is gone."""
        for record in records:
            if isinstance(record, AppliedRecord) and record.checkpoint is not None:
                self.state.done = Done(applied=record.applied)

    def _take(self, now: float, order: Order) -> None:
        """Lower terms and older documents are ignored."""
        state = self.state
        if state.order is not None and (order.seq <= state.order.seq or order.term < state.order.term):
            return
        state.order = order
        leaves = CellState.rollout if order.role is Role.train else CellState.train
        if state.timing is None and state.body.state is leaves:
            state.timing = Timing(origin=leaves, mark=now)

    def _timer(self, now: float, key: str) -> list[Effect]:
        match key:
            case _ if key == REGISTER:
                return self._membership.beat()
            case _ if key == HEARTBEAT:
                return [SetTimer(HEARTBEAT, self._heartbeat_s()), *self._measure(now)]
            case _ if key == DEADLINE:
                self._steps.overdue()
                return self._abort_reduce()
            case _ if key == RETRY:
                self._steps.failed = ""
                return []
        return self._supply.timer(key) or []

    def _heartbeat_s(self) -> float:
        """A core in training looks more often: a commit waits for what was handed in to it."""
        order, settings = self.state.order, self.state.settings
        awaits_sums = order is not None and order.is_core and order.role is Role.train
        if awaits_sums:
            return settings.core_heartbeat_s
        quiet_s = settings.heartbeat_s * 2.0 ** min(self._reporter.quiet_beats, 10)
        return max(settings.heartbeat_s, min(settings.quiet_heartbeat_s, quiet_s))

    def _measure(self, now: float) -> list[Effect]:
        """One look at a time: a slow one makes the figures older, not the heartbeat later."""
        deadline_s = self.state.settings.measure_deadline_s
        if self._measuring:
            self._blind = f"look at the cell: no answer within {deadline_s:g} s" if now - self._looking_since > deadline_s else self._blind
            return []
        self._measuring, self._put_while_measuring, self._looking_since = self._key(MEASURE), False, now
        update = self.state.order.update if self.state.order is not None else -1
        return [Start(self._measuring, Measure(update=update, deadline_s=deadline_s))]

    def _measured(self, now: float, input: Finished | Failed) -> list[Effect]:
        self._measuring = ""
        if isinstance(input, Failed):
            reason, before = f"{input.kind}: {input.reason}", self._blind
            self._blind = f"look at the cell: {reason}"
            return [Note("measure_failed", {"reason": reason})] if self._blind != before else []
        self._blind = ""
        figures: Figures = input.result
        self.state.figures = figures
        self.state.giving.looks(now, figures.tokens.get("prefilled", 0), figures.curve)
        snapshots = set(figures.snapshots)
        self.state.body.store = self.state.body.store | snapshots if self._put_while_measuring else snapshots
        return []

    def _finished(self, now: float, key: str, result: Any) -> list[Effect]:
        supplied = self._supply.finished(key)
        if supplied:
            self._put_while_measuring |= supplied == "pull"
            if supplied == "pull" and self._steps.running is None:
                self._mark(now, "pull")
            return []
        step = self._steps.end(key)
        if step is None:
            return []
        self._put_while_measuring = True
        self._mark(now, step.name)
        try:
            outcome.succeed(self.state, now, step.action, result)
        except outcome.StepRefused as refused:
            return self._fail(now, step, str(refused))
        if isinstance(step.action, SaveCheckpoint):
            self.state.save_s = max(self.state.save_s, now - step.began)
        return self._steps.succeed() + _checkpoint_notes(step.action, now - step.began) + self._kv_notes(step.action, result)

    def _failed(self, now: float, key: str, reason: str) -> list[Effect]:
        """An AbortReduce that fails leaves its Reduce to the deadline that it has of its own."""
        effects = self._supply.failed(key, reason)
        if effects is not None:
            return effects
        step = self._steps.end(key)
        return [] if step is None else self._fail(now, step, reason)

    def _fail(self, now: float, step: Step, reason: str) -> list[Effect]:
        again = outcome.fail(self.state, now, step.action, reason)
        return [
            *self._steps.fail(step, reason, again),
            Note("step_failed", {"step": step.name, "reason": reason}),
        ]

    def _kv_notes(self, action: Action | AppliedRecord, result: Any) -> list[Effect]:
        return [Note("kv_moved", given_note(self.state.settings.name, action.moves, result))] if isinstance(action, MoveKv) else []

    def _kv_stays(self) -> list[Effect]:
        giving = self.state.giving
        reason, giving.stays = giving.stays, ""
        fields = {"cell": self.state.settings.name, "conversations": giving.num_left, "reason": reason}
        return [Note("kv_stays", fields)] if reason else []

    def _mark(self, now: float, step: str) -> None:
        if self.state.timing is not None:
            self.state.timing.add(now, step)

    def _go(self, now: float) -> list[Effect]:
        """Begin what can be begun."""
        order = self.state.order
        if order is None:
            self.state.waiting = "a first order"
            return []
        effects: list[Effect] = self._supply.advance(order)
        if self._steps.running is not None:
            return effects + (self._abort_reduce() if self._reduce_is_void(order) else [])
        wanted = next_step(self.state, order, now)
        self.state.waiting = wanted.reason if isinstance(wanted, Wait) else ""
        effects += self._kv_stays()
        if isinstance(wanted, Wait) or self._steps.must_wait(wanted):
            return effects
        outcome.begin(self.state, wanted)
        return effects + self._steps.begin(now, wanted)

    def _reduce_is_void(self, order: Order) -> bool:
        """The Reduce in progress is for nothing: its commit was given up."""
        step = self._steps.running
        if step is None or not isinstance(step.action, Reduce):
            return False
        asked = order.commit
        return (
            order.role is not Role.train
            or asked is None
            or asked.generation != step.action.generation
            or not self.state.total.stands_for(order)
        )

    def _abort_reduce(self) -> list[Effect]:
        """Once for each Reduce, which then fails."""
        step = self._steps.running
        if step is None or not isinstance(step.action, Reduce) or self._aborting == step.key:
            return []
        self._aborting = step.key
        abort = AbortReduce(generation=step.action.generation, deadline_s=self.state.settings.switch_deadline_s)
        return [Start(self._key(ABORT), abort)]

    def _key(self, kind: str) -> str:
        self._num_started += 1
        return f"{kind}#{self._num_started}"


def _checkpoint_notes(action: Action | AppliedRecord, seconds: float) -> list[Effect]:
    match action:
        case SaveCheckpoint(version=version):
            return [Note("checkpoint", {"version": str(version), "saved": str(version), "seconds": round(seconds, 3)})]
        case LoadCheckpoint(version=version, folder=folder):
            return [Note("checkpoint", {"version": str(version), "loaded": folder})]
    return []
