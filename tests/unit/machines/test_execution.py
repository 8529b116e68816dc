"""The execution machine, told facts by hand."""

from gyre_hpc.machines.base import (
    Failed,
    Finished,
    Persist,
    Persisted,
    Progressed,
    Received,
    SetTimer,
    TimerFired,
)
from gyre_hpc.machines.execution import (
    Began,
    Finish,
    Forgotten,
    HarnessEnd,
    RemoveWorkspace,
    RunHarness,
    RunnerSettings,
    Scored,
    StopHarness,
    Unscorable,
)
from gyre_hpc.protocol.to_batch import Ended, ScoreState
from gyre_hpc.protocol.to_runner import Assignment, Begin
from tests.fakes.execution_bench import WELL, A, B, Bench, C, starts


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
    assert len(bench.machine._book) == 0, "nothing is kept of it"


def test_an_older_assignment_changes_nothing():
    bench = Bench().running(A)
    effects = bench.tell(Received("controller", Assignment(0, ())))
    assert not effects and bench.report().running == (A,)


def test_an_execution_no_longer_assigned_is_killed_and_forgotten():
    bench = Bench().running(A)
    effects = bench.assign(B)
    assert starts(effects, StopHarness) == [StopHarness(A, True)]
    effects = bench.tell(Finished(f"run/{A}", HarnessEnd(-9, True, False)))
    assert starts(effects, RemoveWorkspace) == [RemoveWorkspace(A)] and Forgotten((A,), 2) in bench.log
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


def test_a_kill_that_failed_is_tried_again_after_the_grace():
    bench = Bench().running(A)
    bench.tell(TimerFired(f"soft/{A}"))
    bench.tell(TimerFired(f"grace/{A}"))
    effects = bench.tell(Failed(f"kill/{A}", "OSError", "x"))
    assert [e.key for e in effects if isinstance(e, SetTimer)] == [f"grace/{A}"]
    assert starts(bench.tell(TimerFired(f"grace/{A}")), StopHarness) == [StopHarness(A, True)]
    bench.tell(Finished(f"run/{A}", WELL))
    assert not [e for e in bench.tell(Failed(f"kill/{A}", "OSError", "x")) if isinstance(e, SetTimer)], "it is gone"


def test_what_is_no_longer_wanted_is_killed_until_it_is_gone():
    bench = Bench().running(A)
    assert starts(bench.assign(), StopHarness) == [StopHarness(A, True)]
    bench.tell(Failed(f"kill/{A}", "OSError", "x"))
    assert starts(bench.tell(TimerFired(f"grace/{A}")), StopHarness) == [StopHarness(A, True)]
    assert not starts(bench.tell(TimerFired(f"soft/{A}")), StopHarness), "it is being killed"


def test_shards_do_not_depend_on_who_is_alive():
    wide = RunnerSettings(
        runner="r", incarnation=1, gateways=("g0", "g1", "g2"), capacity=1, cpus=1, memory_mb=1, execution_cpus=1, execution_memory_mb=1
    )  # fmt: skip
    shards = [wide.shard(f"train-0-{group}-0") for group in range(60)]
    assert set(shards) == {"g0", "g1", "g2"} and shards == [wide.shard(f"train-0-{group}-0") for group in range(60)]
