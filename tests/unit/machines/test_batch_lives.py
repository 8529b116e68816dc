"""Lives of executions in the batch machine: how many, how long, and what takes their place."""

import pytest

from gyre_hpc.machines.base import Effect, Persist, Persisted, Send
from gyre_hpc.machines.batch.records import AttemptBegun, ExecutionRestarted, FirstCalled, LifeBegun
from gyre_hpc.protocol.to_batch import ExecutionTakenUp, GatewayReport, RunnerReport
from gyre_hpc.protocol.to_runner import Assignment, Begin
from tests.fakes.batch_bench import FIRST, GROUPS, HISTORY, machine, tell

ONE = f"{GROUPS[0]}-0"
SPOKE = FirstCalled(ONE, FIRST)


def decided(effects: list[Effect]) -> list[object]:
    """What becomes of ONE."""
    records = [effect.record for effect in effects if isinstance(effect, Persist)]
    return [one for one in records if ONE in (getattr(one, "execution", ""), getattr(one, "old", ""))]


def test_an_execution_that_has_begun_as_often_as_it_may_is_begun_anew_under_another_id() -> None:
    for life, expected in ((2, LifeBegun(ONE, 3)), (3, ExecutionRestarted(ONE, f"{ONE}-r1"))):
        _, effects = machine(*HISTORY, SPOKE, LifeBegun(ONE, life), AttemptBegun(2), attempt=2, max_lives=4)
        assert decided(effects) == [expected]


def test_an_execution_that_has_said_nothing_yet_may_begin_any_number_of_times() -> None:
    _, effects = machine(*HISTORY, LifeBegun(ONE, 9), AttemptBegun(2), attempt=2, max_lives=4)
    assert decided(effects) == [LifeBegun(ONE, 10)]


def test_without_replay_every_execution_of_an_earlier_attempt_is_begun_anew_under_another_id() -> None:
    made, effects = machine(*HISTORY, SPOKE, AttemptBegun(2), attempt=2, replays=False)
    restarts = [effect for effect in effects if isinstance(effect, Persist)]
    assert [one.record for one in restarts] == [ExecutionRestarted(f"{id}-0", f"{id}-0-r1") for id in GROUPS]
    for effect in restarts:
        made.handle(0.1, Persisted(effect.key))
    group = made.state.groups.groups[GROUPS[0]]
    assert (group.members, group.former, group.first_versions) == ([f"{ONE}-r1"], [ONE], {})
    assert ONE not in made.state.groups.live and f"{ONE}-r1" in made.state.groups.live


@pytest.mark.parametrize(
    ("recorded_s", "soft_s", "hard_s"), [(0.0, 60.0, 75.0), (20.0, 40.0, 55.0), (45.0, 15.0, 30.0), (500.0, 15.0, 30.0)]
)
def test_a_later_life_has_less_time_by_what_its_recorded_calls_took_and_never_less_than_a_quarter(
    recorded_s: float, soft_s: float, hard_s: float
) -> None:
    made, effects = machine(*HISTORY, SPOKE, AttemptBegun(2), attempt=2, soft_deadline_s=60.0, hard_deadline_s=75.0)
    for effect in effects:
        if isinstance(effect, Persist):
            made.handle(0.1, Persisted(effect.key))
    taken_up = ExecutionTakenUp(ONE, 1, 100, recorded_s)
    effects = tell(made, 0.2, RunnerReport("runner-0", 1, 1, -1, capacity=4))
    effects += tell(made, 0.3, GatewayReport("gateway-0", 1, 1, -1, 0, facts=(taken_up,)), "gateway-0")
    assert begun(effects)[ONE] == Begin(ONE, "train", 0, soft_s, hard_s, 1)


def test_what_an_earlier_life_took_shortens_the_present_one_alone() -> None:
    made, effects = machine(*HISTORY, SPOKE, AttemptBegun(2), attempt=2, soft_deadline_s=60.0, hard_deadline_s=75.0)
    for effect in effects:
        if isinstance(effect, Persist):
            made.handle(0.1, Persisted(effect.key))
    late = ExecutionTakenUp(ONE, 0, 100, 20.0)
    tell(made, 0.2, GatewayReport("gateway-0", 1, 1, -1, 0, facts=(late,)), "gateway-0")
    assert begun(tell(made, 0.3, RunnerReport("runner-0", 1, 1, -1, capacity=4)))[ONE].soft_deadline_s == 60.0


def begun(effects: list[Effect]) -> dict[str, Begin]:
    """By the newest assignment in them."""
    assignments = [effect.message for effect in effects if isinstance(effect, Send) and isinstance(effect.message, Assignment)]
    return {one.execution: one for one in assignments[-1].begin}
