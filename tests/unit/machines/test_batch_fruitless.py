"""A run that trains on nothing ends with exit code 1 and the commonest reason; no update is made of nothing; bad luck ends no run."""

from typing import Any

import pytest

from gyre_hpc.config.schema import SchedulerConfig
from gyre_hpc.machines.base import Effect, Persisted, TimerFired
from gyre_hpc.machines.batch import BatchMachine
from gyre_hpc.machines.batch.fruit import commonest
from gyre_hpc.machines.batch.intake import end_execution
from gyre_hpc.machines.batch.records import AttemptBegun, ExecutionEnded, FirstCalled
from gyre_hpc.protocol.identity import ExecutionId, GroupId
from gyre_hpc.protocol.to_batch import Ended, RunnerReport, ScoreState
from tests.fakes.batch_bench import FIRST, HISTORY, machine, serving
from tests.fakes.batch_world import BatchWorld

WINDOW = 8
GROUP = GroupId("train", 0, 0)
SANDBOX = "the sandbox did not start: bwrap: Can't find source path /tmp/s/{}: Permission denied"


def failed(execution: str, reason: str = SANDBOX, **how: Any) -> Ended:
    return Ended(execution, ScoreState.infra_error, None, reason=reason.format(execution), **how)


class Run:
    """The executions of HISTORY run on as many runners as there are."""

    def __init__(self, *records: Any, runners: int = 1, **changed: Any) -> None:
        names = tuple(f"runner-{i}" for i in range(runners))
        self.made: BatchMachine = serving(*records, runners=names, fruitless_window=WINDOW, max_restarts_of_execution=10**6, **changed)
        self.state = self.made.state
        self.state.runners = {name: RunnerReport(name, 1, 1, 0, capacity=100) for name in names}
        self.state.unplaced.clear()
        self.tick()

    def tick(self) -> list[Effect]:
        effects = self.made.handle(1.0, TimerFired("tick"))
        return effects + [effect for key in list(self.state.pending) for effect in self.made.handle(1.0, Persisted(key))]

    def end(self, ended: Ended) -> list[Effect]:
        return [*end_execution(self.state, 1.0, ended=ended), *self.tick()]

    def fail(self, times: int, runner: str = "", **how: Any) -> None:
        """So many executions fail, each in place of the one that failed before."""
        for _ in range(times):
            execution = next(one for one, of in sorted(self.state.assignments.items()) if runner in ("", of))
            self.end(failed(execution, **how))

    @property
    def code(self) -> int | None:
        return self.state.exit_code if self.state.finished else None


def test_a_window_of_failures_ends_the_run_with_the_commonest_reason() -> None:
    run = Run()
    run.fail(2, reason="the workspace could not be made: OSError: no room")
    run.fail(WINDOW - 3)
    assert run.code is None
    run.fail(1)
    assert run.code == 1
    assert f"{WINDOW} executions in a row" in run.state.reason and f"suite.fruitless_window={WINDOW}" in run.state.reason
    assert "the sandbox did not start" in run.state.reason and f"({WINDOW - 2} of {WINDOW})" in run.state.reason


def test_people_are_told_before_the_end_and_once() -> None:
    run = Run()
    run.fail(WINDOW - 1)
    (alarm,) = run.state.alarms
    assert "2 executions in a row" in alarm and "the sandbox did not start" in alarm


def test_a_score_after_a_sampled_token_begins_a_new_row() -> None:
    run = Run()
    run.fail(WINDOW - 1)
    execution = min(run.state.assignments)
    run.state.groups.first_call(execution, FIRST)
    run.end(Ended(execution, ScoreState.partial, 0.0))
    run.fail(WINDOW - 1)
    assert run.code is None
    run.fail(1)
    assert run.code == 1


def test_a_score_of_which_no_token_is_known_yet_neither_counts_nor_clears() -> None:
    run = Run()
    run.fail(WINDOW - 1)
    run.end(Ended(min(run.state.assignments), ScoreState.scored, 0.0, reason="exit code 127"))
    assert run.code is None
    run.fail(1)
    assert run.code == 1


def test_processes_gone_with_their_runners_end_no_run() -> None:
    run = Run(max_lives=1)
    for _ in range(3 * WINDOW):
        execution = min(run.state.assignments)
        run.state.groups.first_call(execution, FIRST)
        run.end(failed(execution, life=run.state.groups.lives.get(execution, 0), is_lost=True))
    assert run.code is None and len(run.state.fruitless) == 0


def test_one_node_where_all_fail_at_once_ends_no_run_while_the_others_compute() -> None:
    run = Run(runners=2)
    run.fail(5 * WINDOW, runner="runner-0")
    assert run.code is None and set(run.state.assignments.values()) == {"runner-0", "runner-1"}
    run.fail(1, runner="runner-1")
    assert run.code == 1


def test_a_window_of_zero_ends_nothing() -> None:
    run = Run()
    object.__setattr__(run.state.settings, "fruitless_window", 0)
    run.fail(10 * WINDOW)
    assert run.code is None and len(run.state.fruitless) == 0


RECORDS = tuple(ExecutionEnded(failed(str(ExecutionId("train", 1, 1, 0, restart)))) for restart in range(WINDOW - 1))


def test_a_restarted_controller_goes_on_with_the_row() -> None:
    made, _ = machine(*HISTORY, *RECORDS, fruitless_window=WINDOW)
    assert len(made.state.fruitless) == WINDOW - 1


@pytest.mark.parametrize("attempt", [1, 2])
def test_another_attempt_begins_a_new_row(attempt: int) -> None:
    begun = (AttemptBegun(2),) if attempt == 1 else ()
    made, _ = machine(*HISTORY, *RECORDS, *begun, attempt=2, fruitless_window=WINDOW)
    assert len(made.state.fruitless) == 0


def test_a_restarted_controller_knows_the_tokens_of_those_that_ended() -> None:
    scored = (FirstCalled(f"{GROUP}-0", FIRST), ExecutionEnded(Ended(f"{GROUP}-0", ScoreState.scored, 0.5)))
    made, _ = machine(*HISTORY, *RECORDS, *scored, fruitless_window=WINDOW)
    assert len(made.state.fruitless) == 0


def test_reasons_that_differ_in_names_and_numbers_are_one() -> None:
    ends = [failed(f"train-0-0-{i}", "could not reach port 80{}") for i in range(3)] + [failed("train-0-1-0", "disk full")] * 2
    assert commonest(ends).startswith("infra_error: could not reach port 80train-0-0-2 (3 of 5)")
    assert commonest([]) == "no execution has ended"


def world(**more: Any) -> BatchWorld:
    made = BatchWorld(scheduler=SchedulerConfig(), updates=2, evals=0, max_restarts_of_execution=0, **more)
    made.run()
    return made


def test_no_update_is_made_of_nothing_and_the_run_ends_after_three_such_batches() -> None:
    ran = world(fails=lambda execution: True)
    assert ran.finished is not None and ran.finished.exit_code == 1
    assert "batch of update 0" in ran.finished.reason and "3 times in a row" in ran.finished.reason
    assert "infra_error: no sandbox for" in ran.finished.reason and "(8 of 8)" in ran.finished.reason
    assert not ran.kinds("applied")
    assert sum("begun anew" in alarm["what"] for alarm in ran.kinds("alarm")) == 2


def test_a_batch_of_nothing_is_begun_anew_and_the_run_makes_all_its_updates() -> None:
    ran = world(fails=lambda execution: ExecutionId.parse(execution).restart == 0)
    assert ran.finished is not None and ran.finished.exit_code == 0, ran.finished
    assert all(applied["executions"] for applied in ran.kinds("applied")) and len(ran.kinds("applied")) == 2
    anew = [alarm for alarm in ran.kinds("alarm") if "begun anew" in alarm["what"]]
    assert anew and len({fields["execution"] for fields in ran.kinds("execution_restarted")}) == 8 * len(anew)


def test_an_evaluation_without_a_single_score_is_an_alarm_and_its_executions_count() -> None:
    only_evaluations = {"evals": 3, "max_restarts_of_execution": 0, "fails": lambda execution: execution.startswith("eval")}
    ran = BatchWorld(scheduler=SchedulerConfig(), **only_evaluations)
    ran.run()
    assert ran.finished is not None and ran.finished.exit_code == 0
    (first, last) = [alarm for alarm in ran.kinds("alarm") if "no execution has a score" in alarm["what"]]
    assert "(3 of 3)" in first["reason"] and "infra_error: no sandbox for eval" in last["reason"]
    ran = BatchWorld(scheduler=SchedulerConfig(), fruitless_window=3, **only_evaluations)
    ran.run()
    assert ran.finished is not None and ran.finished.exit_code == 1 and "3 executions in a row" in ran.finished.reason
