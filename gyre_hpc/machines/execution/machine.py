"""Runs what the batch machine assigned to this runner, each execution to exactly one end.

Invariants (each has a test):
  - executions that take room never exceed the declared cpus, memory and capacity;
  - an execution begins only after that is durable, and is reported ended only after that is durable;
  - every begun execution ends once: scored, partial, unscored or infra_error, at the latest at its hard deadline;
  - the workspace is scored only after the harness's whole tree is gone, and removed after that;
  - what failed through us is infra_error, never a score.
"""

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
    Restarted,
    SetTimer,
    Start,
    TimerFired,
)
from gyre_hpc.machines.execution.actions import (
    HarnessEnd,
    RunHarness,
    Scored,
    ScoreWorkspace,
    StopHarness,
    SweepWorkspaces,
    Unscorable,
)
from gyre_hpc.machines.execution.book import Book
from gyre_hpc.machines.execution.life import ACTIVE, Life, Stage
from gyre_hpc.machines.execution.records import Began, Finish, Forgotten, Record
from gyre_hpc.machines.execution.reporter import REPORT, USAGE, Reporter
from gyre_hpc.machines.execution.settings import RunnerSettings
from gyre_hpc.machines.execution.steps import FAULTS, UNDER_WAY, clear, ended_of, kill_again, prepare, shorten, shortfall_of, stop_harness
from gyre_hpc.machines.execution.wanted import Wanted
from gyre_hpc.machines.membership import TIMER as REGISTER
from gyre_hpc.machines.membership import Membership
from gyre_hpc.protocol.supervision import Directory, Register
from gyre_hpc.protocol.to_batch import Ended, ScoreState
from gyre_hpc.protocol.to_runner import Assignment

SWEEP, STORAGE = "sweep", "storage"


class RunnerMachine(Machine):
    """Begins at Restarted; takes no execution before the workspaces of an earlier life are swept away."""

    def __init__(self, settings: RunnerSettings, register: Register) -> None:
        self._settings = settings
        self._membership = Membership(register)
        self._gateways: dict[str, str] = {}
        self._lives: dict[str, Life] = {}
        self._book = Book()
        self._wanted = Wanted()
        self._reporter = Reporter(settings)
        self._swept = False
        self._ending: dict[str, Ended] = {}
        """Decided, not yet durable."""
        self._num_forgets = 0

    def handle(self, now: float, input: Input) -> list[Effect]:
        match input:
            case Restarted(records=records):
                effects = self._restarted(tuple(records))
            case Received(message=Assignment() as assignment):
                effects = self._assigned(now, assignment)
            case Received(message=Directory() as directory):
                self._gateways |= {entry.process: entry.url for entry in directory.entries if entry.url}
                effects = self._membership.heard(directory)
            case Received():
                effects = []
            case TimerFired(key=key):
                effects = self._timer(now, key)
            case Persisted(key=key):
                effects = self._persisted(now, key)
            case Finished(key=key, result=result):
                effects = self._finished(now, key, result)
            case Progressed(key=key):
                effects = self._turn_came(key)
            case Failed(key=key, kind=kind, reason=reason):
                effects = self._failed(now, key, kind, reason)
            case _:
                raise AssertionError(f"a runner is never told {input!r}")
        return effects + self._admit(now)

    def _restarted(self, records: tuple[Record, ...]) -> list[Effect]:
        effects = [*self._membership.beat(), Start(SWEEP, SweepWorkspaces()), *self._reporter.soon()]
        for lost in self._book.read(records):
            effects += self._persist_end(lost)
        self._wanted.oldest = self._book.assignment
        return effects

    def _assigned(self, now: float, assignment: Assignment) -> list[Effect]:
        if not self._wanted.take(assignment):
            return []
        effects = self._reporter.soon()
        if forgotten := self._book.acknowledge(assignment.acked):
            effects.append(self._persist_forgotten(forgotten))
        for life in [life for life in self._lives.values() if life.stage is not Stage.over]:
            begin = self._wanted.now(life)
            effects += self._drop(life) if begin is None else shorten(life, begin, now)
        for begin in self._wanted:
            self._take(begin.execution)
        return effects

    def _take(self, execution: str) -> None:
        """What is wanted of it is queued, once no earlier life of it is here any more."""
        begin = self._wanted.get(execution)
        is_here = execution in self._lives or execution in self._ending
        if begin is not None and not is_here and not self._book.knows(execution, begin.life):
            self._lives[execution] = Life(begin=begin)

    def _timer(self, now: float, key: str) -> list[Effect]:
        if key == REGISTER:
            return self._membership.beat()
        if key == REPORT:
            return self._reporter.due(self._wanted.number, self._lives.values(), self._book.unacknowledged())
        if key == STORAGE:
            self._reporter.storage_full = ""
            return self._reporter.soon()
        verb, _, execution = key.partition("/")
        life = self._lives.get(execution)
        if life is None or life.stage is Stage.over:
            return []
        if verb == "soft":
            return self._soft_deadline(now, life)
        if verb == "hard":
            return self._hard_deadline(now, life)
        if verb == "scoring":
            reason = f"scoring took longer than {self._settings.score_s:g} s"
            return self._end(now, life, ScoreState.infra_error, reason=reason, under_way="score")
        assert verb == "grace", key
        is_wanted_gone = life.stage is Stage.stopping or life.dropped
        return [Start(life.key("kill"), StopHarness(life.id, True))] if is_wanted_gone else []

    def _persisted(self, now: float, key: str) -> list[Effect]:
        verb, _, execution = key.partition("/")
        life = self._lives.get(execution)
        if verb == "begin" and life is not None and life.stage is Stage.recording:
            return prepare(life)
        if verb == "end":
            return self._ended(execution)
        return []

    def _finished(self, now: float, key: str, result: object) -> list[Effect]:
        if key == SWEEP:
            self._swept = True
            return []
        if key == USAGE:
            return self._reporter.measured(result)
        verb, _, execution = key.partition("/")
        life = self._lives.get(execution)
        if life is None:
            return []
        if verb == "prepare" and life.stage is Stage.preparing:
            return self._run(life)
        if verb == "run" and life.stage in (Stage.running, Stage.stopping):
            assert isinstance(result, HarnessEnd)
            return self._harness_ended(now, life, result)
        if verb == "score" and life.stage is Stage.scoring:
            assert isinstance(result, Scored | Unscorable)
            return self._scored(now, life, result)
        return []

    def _turn_came(self, key: str) -> list[Effect]:
        verb, _, execution = key.partition("/")
        life = self._lives.get(execution)
        is_its = verb == "score" and life is not None and life.stage is Stage.scoring
        return [SetTimer(f"scoring/{execution}", self._settings.score_s)] if is_its else []

    def _failed(self, now: float, key: str, kind: str, reason: str) -> list[Effect]:
        verb, _, execution = key.partition("/")
        if key == SWEEP:
            return [*self._finished(now, key, None), Note("sweep_failed", {"reason": reason})]
        if key == USAGE:
            return self._reporter.measured(None)
        life = self._lives.get(execution)
        if verb in ("begin", "end", "forget"):
            return self._not_persisted(life, key, f"{kind}: {reason}")
        if life is None or life.stage is Stage.over or verb not in FAULTS:
            note = Note("action_failed", {"key": key, "reason": f"{kind}: {reason}"})
            return [note, *kill_again(life, verb, self._settings.grace_s)]
        if life.dropped:
            return self._forget(life)
        return self._end(now, life, ScoreState.infra_error, reason=f"{FAULTS[verb]}: {kind}: {reason}")

    def _admit(self, now: float) -> list[Effect]:
        """Begin queued executions, oldest assignment first, while there is room for one more."""
        if not self._swept or self._reporter.storage_full:
            return []
        room = self._settings.room - sum(life.stage in ACTIVE for life in self._lives.values())
        effects: list[Effect] = []
        for life in list(self._lives.values()):
            if room <= 0:
                break
            if life.stage is Stage.queued and self._settings.shard(life.id) in self._gateways:
                life.stage, life.began_at = Stage.recording, now
                effects.append(Persist(life.key("begin"), Began(life.id, life.number)))
                room -= 1
        return effects + self._reporter.soon() if effects else []

    def _run(self, life: Life) -> list[Effect]:
        life.stage = Stage.running
        gateway = self._gateways[self._settings.shard(life.id)]
        return [Start(life.key("run"), RunHarness(life.begin, gateway)), Note("execution_began", {"execution": life.id})]

    def _soft_deadline(self, now: float, life: Life) -> list[Effect]:
        if life.stage is Stage.preparing:
            reason = "the workspace was not ready by the soft deadline"
            return self._end(now, life, ScoreState.infra_error, reason=reason, under_way="prepare")
        if life.stage is not Stage.running or life.dropped:
            return []
        life.shortfall = f"soft deadline of {life.begin.soft_deadline_s:g} s"
        return stop_harness(life, self._settings.grace_s)

    def _hard_deadline(self, now: float, life: Life) -> list[Effect]:
        """Whatever it hangs in is ours: the harness had its time before."""
        under_way = UNDER_WAY.get(life.stage, "")
        if life.dropped:
            return self._forget(life, under_way)
        reason = f"hard deadline of {life.begin.hard_deadline_s:g} s while {life.stage.value}"
        return self._end(now, life, ScoreState.infra_error, reason=reason, under_way=under_way)

    def _harness_ended(self, now: float, life: Life, end: HarnessEnd) -> list[Effect]:
        self._reporter.harness_cpu_s += end.cpu_s
        if life.dropped:
            return self._forget(life)
        if not end.started:
            return self._end(now, life, ScoreState.infra_error, reason=f"the sandbox did not start: {end.tail.strip()}")
        life.shortfall, life.stage = shortfall_of(life, end), Stage.scoring
        return [CancelTimer(life.key("grace")), Start(life.key("score"), ScoreWorkspace(life.begin))]

    def _scored(self, now: float, life: Life, result: Scored | Unscorable) -> list[Effect]:
        if isinstance(result, Unscorable):
            return self._end(now, life, ScoreState.unscored, reason=result.reason)
        state = ScoreState.partial if life.shortfall else ScoreState.scored
        return self._end(now, life, state, score=result, reason=life.shortfall)

    def _end(
        self, now: float, life: Life, state: ScoreState, *, score: Scored | None = None, reason: str = "", under_way: str = ""
    ) -> list[Effect]:
        """Decide the end; the action `under_way` is stopped, the workspace removed."""
        effects = clear(life, under_way)
        ended = ended_of(life, now, state, score, reason)
        life.stage = Stage.over
        note = Note("execution_ended", {"execution": life.id, "state": state.value, "score": ended.score, "reason": ended.reason})
        return [*effects, note, *self._persist_end(ended)]

    def _drop(self, life: Life) -> list[Effect]:
        """The batch machine wants it no more. A harness is ended first, its workspace goes after it."""
        if life.stage is Stage.queued:
            del self._lives[life.id]
            self._take(life.id)
            return self._reporter.soon()
        if life.stage in (Stage.running, Stage.stopping):
            if life.dropped:
                return []
            life.dropped = True
            return [Start(life.key("kill"), StopHarness(life.id, True))] if life.stage is Stage.running else []
        return self._forget(life, UNDER_WAY.get(life.stage, ""))

    def _forget(self, life: Life, under_way: str = "") -> list[Effect]:
        del self._lives[life.id]
        self._take(life.id)
        cleared = clear(life, under_way) if life.stage is not Stage.recording else []
        return [*cleared, self._persist_forgotten((life.address,)), *self._reporter.soon()]

    def _persist_end(self, ended: Ended) -> list[Effect]:
        self._ending[ended.execution] = ended
        return [Persist(f"end/{ended.execution}", Finish(ended))]

    def _persist_forgotten(self, addresses: tuple[str, ...]) -> Effect:
        self._num_forgets += 1
        return Persist(f"forget/{self._num_forgets}", Forgotten(addresses, self._wanted.number))

    def _ended(self, execution: str) -> list[Effect]:
        self._lives.pop(execution, None)
        self._book.end(self._ending.pop(execution))
        self._take(execution)
        return self._reporter.soon()

    def _not_persisted(self, life: Life | None, key: str, reason: str) -> list[Effect]:
        """The run folder takes no writes: begin nothing until it may again. Ends are told all the same."""
        self._reporter.storage_full = reason
        effects: list[Effect] = [SetTimer(STORAGE, self._settings.storage_retry_s), Note("storage_full", {"reason": reason})]
        verb, _, execution = key.partition("/")
        if verb == "begin" and life is not None and life.stage is Stage.recording:
            life.stage = Stage.queued
        effects += self._ended(execution) if verb == "end" else []
        return effects + self._reporter.soon()
