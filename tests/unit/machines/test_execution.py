"""The execution machine, told facts by hand and by hypothesis."""

from hypothesis import given, settings
from hypothesis import strategies as st

from gyre_hpc.machines.base import (
    CancelTimer,
    Effect,
    Failed,
    Finished,
    Input,
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
from gyre_hpc.machines.execution import (
    Began,
    Finish,
    Forgotten,
    HarnessEnd,
    RemoveWorkspace,
    RunHarness,
    RunnerMachine,
    RunnerSettings,
    Scored,
    StopHarness,
    Unscorable,
)
from gyre_hpc.protocol.supervision import Directory, Entry, Register
from gyre_hpc.protocol.to_batch import Ended, RunnerReport, ScoreState
from gyre_hpc.protocol.to_runner import Assignment, Begin

A, B, C = "train-0-0-0", "train-0-0-1", "train-0-0-2"
SETTINGS = RunnerSettings(
    runner="runner-0", incarnation=1, gateways=("gateway-0",), capacity=8, cpus=2.0, memory_mb=1000, execution_cpus=1.0, execution_memory_mb=100
)  # fmt: skip
WELL = HarnessEnd(code=0, started=True, finished=True, cpu_s=0.5)


class Bench:
    """Feeds one machine; persists at once unless told otherwise."""

    def __init__(self, records: tuple = (), *, persist: bool = True, swept: bool = True) -> None:
        self.machine = RunnerMachine(SETTINGS, Register("runner-0", 1, "http://r", 1))
        self.now, self.effects, self.number, self.persist = 0.0, list[Effect](), 0, persist
        self.log: list = list(records)
        self.tell(Restarted(records))
        if swept:
            self.tell(Finished("sweep"))
        self.tell(Received("supervisor-0", Directory(1, (Entry("gateway-0", 1, "http://g"),))))

    def tell(self, told: Input) -> list[Effect]:
        effects = self.machine.handle(self.now, told)
        self.effects += effects
        if self.persist:
            for effect in list(effects):
                if isinstance(effect, Persist):
                    self.log.append(effect.record)
                    effects = effects + self.tell(Persisted(effect.key))
        return effects

    def assign(self, *executions: str, acked: tuple[str, ...] = ()) -> list[Effect]:
        self.number += 1
        begins = tuple(Begin(execution, "train", 0, 60.0, 75.0) for execution in executions)
        return self.tell(Received("controller", Assignment(self.number, begins, acked)))

    def report(self) -> RunnerReport:
        effects = self.tell(TimerFired("report"))
        return next(effect.message for effect in effects if isinstance(effect, Send))

    def running(self, *executions: str) -> "Bench":
        self.assign(*executions)
        for execution in executions:
            self.tell(Finished(f"prepare/{execution}"))
        return self

    def ended(self) -> dict[str, Ended]:
        return {ended.execution: ended for ended in self.report().ended}


def starts(effects: list[Effect], kind: type) -> list:
    return [e.action for e in effects if isinstance(e, Start) and isinstance(e.action, kind)]


def test_an_execution_that_ends_well_is_scored_and_its_workspace_removed():
    bench = Bench().running(A)
    (run,) = starts(bench.effects, RunHarness)
    assert run.gateway == "http://g"
    bench.now = 7.0
    bench.tell(Finished(f"run/{A}", WELL))
    effects = bench.tell(Finished(f"score/{A}", Scored(0.5, False, {"x": 0.5})))
    assert starts(effects, RemoveWorkspace) == [RemoveWorkspace(A)]
    assert bench.ended()[A] == Ended(A, ScoreState.scored, 0.5, False, "", 7.0, {"x": 0.5})
    assert bench.report().harness_cpu_s == 0.5


def test_no_more_executions_run_than_the_declared_cpus_allow():
    bench = Bench()
    bench.assign(A, B, C)
    report = bench.report()
    assert (report.running, report.queued, report.capacity) == ((A, B), (C,), 2)
    bench.tell(Finished(f"prepare/{A}"))
    bench.tell(Finished(f"run/{A}", WELL))
    bench.tell(Finished(f"score/{A}", Scored(1.0, True)))
    assert bench.report().queued == ()


def test_nothing_begins_before_it_is_durable_and_nothing_is_told_ended_before_it_is():
    bench = Bench(persist=False)
    effects = bench.assign(A)
    assert [e.record for e in effects if isinstance(e, Persist)] == [Began(A)] and not starts(effects, object)
    bench.tell(Persisted(f"begin/{A}"))
    bench.tell(Finished(f"prepare/{A}"))
    bench.tell(Finished(f"run/{A}", WELL))
    bench.tell(Finished(f"score/{A}", Scored(1.0, True)))
    assert bench.report().ended == ()
    bench.tell(Persisted(f"end/{A}"))
    assert bench.ended()[A].state is ScoreState.scored


def test_a_soft_deadline_stops_scores_and_says_partial():
    bench = Bench().running(A)
    effects = bench.tell(TimerFired(f"soft/{A}"))
    assert starts(effects, StopHarness) == [StopHarness(A, False)]
    assert starts(bench.tell(TimerFired(f"grace/{A}")), StopHarness) == [StopHarness(A, True)]
    bench.tell(Finished(f"run/{A}", HarnessEnd(-9, True, False)))
    bench.tell(Finished(f"score/{A}", Scored(0.25, False)))
    ended = bench.ended()[A]
    assert (ended.state, ended.score, ended.reason) == (ScoreState.partial, 0.25, "soft deadline of 60 s")


def test_a_killed_harness_is_scored_as_partial_with_its_last_words():
    bench = Bench().running(A)
    bench.tell(Finished(f"run/{A}", HarnessEnd(-9, True, False, tail="half a word\n")))
    bench.tell(Finished(f"score/{A}", Scored(0.0, False)))
    ended = bench.ended()[A]
    assert (ended.state, ended.score, ended.reason) == (ScoreState.partial, 0.0, "harness killed by signal 9: half a word")


def test_what_fails_through_us_is_never_a_score():
    cases = {
        "workspace": (Failed(f"prepare/{A}", "OSError", "disk"),),
        "sandbox": (Finished(f"prepare/{A}"), Failed(f"run/{A}", "OSError", "no bwrap")),
        "sandbox within": (Finished(f"prepare/{A}"), Finished(f"run/{A}", HarnessEnd(1, False, False, tail="bwrap: no"))),
        "scorer": (Finished(f"prepare/{A}"), Finished(f"run/{A}", WELL), Failed(f"score/{A}", "OSError", "gone")),
        "scorer hangs": (Finished(f"prepare/{A}"), Finished(f"run/{A}", WELL), TimerFired(f"hard/{A}")),
        "scorer hangs in its turn": (
            *(Finished(f"prepare/{A}"), Finished(f"run/{A}", WELL)),
            *(Progressed(f"score/{A}"), TimerFired(f"scoring/{A}")),
        ),
        "never ready": (TimerFired(f"soft/{A}"),),
        "unkillable": (Finished(f"prepare/{A}"), TimerFired(f"soft/{A}"), TimerFired(f"grace/{A}"), TimerFired(f"hard/{A}")),
    }
    for name, inputs in cases.items():
        bench = Bench()
        bench.assign(A)
        for told in inputs:
            bench.tell(told)
        ended = bench.ended()[A]
        assert (ended.state, ended.score) == (ScoreState.infra_error, None), name
        assert ended.reason, name


def test_a_task_without_a_score_is_unscored_with_the_reason():
    bench = Bench().running(A)
    bench.tell(Finished(f"run/{A}", WELL))
    bench.tell(Finished(f"score/{A}", Unscorable("no tests")))
    assert bench.ended()[A] == Ended(A, ScoreState.unscored, None, False, "no tests")


def test_ends_are_told_until_they_are_acknowledged():
    bench = Bench().running(A)
    bench.tell(Finished(f"run/{A}", WELL))
    bench.tell(Finished(f"score/{A}", Scored(1.0, True)))
    assert A in bench.ended() and A in bench.ended()
    bench.assign(acked=(A,))
    assert not bench.ended()
    bench.assign(A)
    assert A in bench.ended() and not bench.report().running, "asked for again it is told again, never run again"


def test_an_older_assignment_changes_nothing():
    bench = Bench().running(A)
    effects = bench.tell(Received("controller", Assignment(0, ())))
    assert not effects and bench.report().running == (A,)


def test_an_execution_no_longer_assigned_is_killed_and_forgotten():
    bench = Bench().running(A)
    effects = bench.assign(B)
    assert starts(effects, StopHarness) == [StopHarness(A, True)]
    effects = bench.tell(Finished(f"run/{A}", HarnessEnd(-9, True, False)))
    assert starts(effects, RemoveWorkspace) == [RemoveWorkspace(A)] and Forgotten((A,)) in bench.log
    report = bench.report()
    assert report.running == (B,) and not report.ended


def test_a_restarted_runner_tells_old_ends_and_calls_interrupted_executions_our_fault():
    ended = Ended(B, ScoreState.scored, 1.0, True)
    bench = Bench((Began(A), Began(B), Finish(ended), Began(C), Forgotten((C,))))
    told = bench.ended()
    assert told[B] == ended and told[A].state is ScoreState.infra_error and set(told) == {A, B}
    effects = bench.assign(A)
    assert not starts(effects, object) and not bench.report().running


def test_a_full_disk_pauses_admission_with_the_reason_and_goes_on():
    bench = Bench(persist=False)
    bench.assign(A)
    bench.tell(Failed(f"begin/{A}", "StorageFull", "no space"))
    report = bench.report()
    assert report.queued == (A,) and "no space" in report.storage_full
    effects = bench.tell(TimerFired("storage"))
    assert [e.record for e in effects if isinstance(e, Persist)] == [Began(A)] and not bench.report().storage_full


def test_a_killed_harness_group_never_outlives_the_grace_allowed_by_its_deadlines():
    bench = Bench()
    bench.number += 1
    bench.tell(Received("controller", Assignment(1, (Begin(A, "train", 0, 60.0, 63.0),))))
    bench.tell(Finished(f"prepare/{A}"))
    effects = bench.tell(TimerFired(f"soft/{A}"))
    assert [e.after_s for e in effects if isinstance(e, SetTimer) and e.key.startswith("grace")] == [1.0]


def test_shards_do_not_depend_on_who_is_alive():
    wide = RunnerSettings(
        runner="r", incarnation=1, gateways=("g0", "g1", "g2"), capacity=1, cpus=1, memory_mb=1, execution_cpus=1, execution_memory_mb=1
    )  # fmt: skip
    shards = [wide.shard(f"train-0-{group}-0") for group in range(60)]
    assert set(shards) == {"g0", "g1", "g2"} and shards == [wide.shard(f"train-0-{group}-0") for group in range(60)]


STEPS = st.lists(st.tuples(st.sampled_from(["assign", "act", "fail", "timer", "persist", "crash"]), st.integers(0, 63)), max_size=80)


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_every_begun_execution_has_one_end_and_never_a_score_without_a_whole_life(steps):
    """Random answers, timers, disk failures and crashes; after it all, the world answers until all is quiet."""
    world = World()
    for step, value in steps:
        world.step(step, value)
    world.settle()
    ended = world.bench.ended()
    assert set(ended) <= set(world.assigned) | set(world.began)
    for execution in world.assigned:
        assert execution in ended, execution
        assert (ended[execution].score is None) == (ended[execution].state is ScoreState.infra_error)


class World:
    """Keeps what the machine started, set and persisted, and answers in any order."""

    def __init__(self) -> None:
        self.bench = Bench(persist=False, swept=False)
        self.durable: list = []
        self.reset()
        self.assigned: tuple[str, ...] = ()
        self.began: set[str] = set()
        self.take(self.bench.effects)

    def reset(self) -> None:
        self.actions: dict[str, object] = {}
        self.timers: dict[str, float] = {}
        self.persists: dict[str, object] = {}

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Start(key=key, action=action):
                    assert key not in self.actions, key
                    if isinstance(action, RunHarness):
                        assert action.begin.execution not in self.began, "begun twice under one id"
                        self.began.add(action.begin.execution)
                    self.actions[key] = action
                case Stop(key=key):
                    self.actions.pop(key, None)
                case SetTimer(key=key, after_s=after_s):
                    self.timers[key] = after_s
                case CancelTimer(key=key):
                    self.timers.pop(key, None)
                case Persist(key=key, record=record):
                    assert key not in self.persists, key
                    self.persists[key] = record
        running = [key for key in self.actions if key.startswith(("prepare/", "run/", "score/"))]
        assert len(running) <= SETTINGS.room + 1  # one may be a harness that is being killed

    def tell(self, told: Input) -> None:
        self.take(self.bench.tell(told))

    def answer(self, key: str, good: bool) -> None:
        action = self.actions.pop(key)
        verb = key.partition("/")[0]
        if not good and verb not in ("term", "kill"):
            self.tell(Failed(key, "OSError", "broken"))
        elif verb == "run":
            self.tell(Finished(key, WELL))
        elif verb == "score":
            self.tell(Finished(key, Scored(1.0, True)))
        else:
            self.tell(Finished(key, 1.0 if key == "usage" else None))
        assert action is not None

    def step(self, step: str, value: int) -> None:
        if step == "assign":
            self.assigned = tuple(id for bit, id in enumerate((A, B, C)) if value & (1 << bit) or id in self.assigned)
            effects = self.bench.assign(*self.assigned)
            self.take(effects)
        elif step in ("act", "fail") and self.actions:
            self.answer(list(self.actions)[value % len(self.actions)], step == "act")
        elif step == "timer" and self.timers:
            key = list(self.timers)[value % len(self.timers)]
            del self.timers[key]
            self.tell(TimerFired(key))
        elif step == "persist" and self.persists:
            key = next(iter(self.persists))
            self.durable.append(self.persists.pop(key))
            self.tell(Persisted(key) if value % 4 else Failed(key, "StorageFull", "no space"))
        elif step == "crash":
            number = self.bench.number
            self.bench = Bench(tuple(self.durable), persist=False, swept=False)
            self.bench.number = number
            self.reset()
            self.take(self.bench.effects)

    def settle(self) -> None:
        self.take(self.bench.assign(*self.assigned))
        for _ in range(200):
            for key in list(self.persists):
                self.durable.append(self.persists.pop(key))
                self.tell(Persisted(key))
            for key in list(self.actions):
                if key in self.actions:
                    self.answer(key, True)
            if "storage" in self.timers:
                del self.timers["storage"]
                self.tell(TimerFired("storage"))
