"""What comes after everybody has forgotten what it is about: it changes nothing, begins nothing and trains nothing again."""

import pytest

from gyre_hpc.machines.base import Effect, Finished, Note, Persist, Received, Restarted, Send
from gyre_hpc.machines.batch import BatchMachine
from gyre_hpc.machines.batch.actions import Checkpoint
from gyre_hpc.machines.batch.consolidation import publish
from gyre_hpc.machines.batch.groups import GroupState
from gyre_hpc.machines.batch.records import CommitIntended, LineageBegun
from gyre_hpc.machines.call.actions import Refuse
from gyre_hpc.machines.execution import Began, Finish, Forgotten
from gyre_hpc.protocol.identity import GroupId, Version
from gyre_hpc.protocol.to_batch import Ended, ExecutionTakenUp, FirstCall, GatewayReport, HandIn, RunnerReport, ScoreState
from gyre_hpc.protocol.to_gateway import Table
from gyre_hpc.protocol.to_runner import Assignment, Begin
from gyre_hpc.protocol.train_groups import TrainGroups
from tests.fakes.batch_bench import HISTORY, machine, report, tell
from tests.fakes.call_parts import Client, row
from tests.fakes.call_world import CallWorld
from tests.fakes.execution_bench import A, Bench
from tests.unit.machines.test_batch_forgetting import UPDATES, past

OVER = "train-0-1-0"
"""Consumed by the first update; its group is retired."""


def retired(*, updates: int = 9) -> BatchMachine:
    """Five updates were made before the controller was restarted, a sixth after that; two checkpoints are kept."""
    made, _ = machine(*past(), updates=updates)
    groups = tuple(GroupId("train", UPDATES, place) for place in range(2))
    for id in groups:
        made.state.groups.begin(id)
    publish(made.state, 1.0, CommitIntended(UPDATES, "m", Version(0, UPDATES + 1), groups, 2), Version(0, UPDATES + 1), {})
    made.handle(1.1, Finished("forget", None))
    assert made.state.groups.retired == TrainGroups(2).united(
        GroupId("train", slot, place) for slot in range(UPDATES) for place in range(2)
    )
    return made


def persisted(effects: list[Effect]) -> list[object]:
    return [effect.record for effect in effects if isinstance(effect, Persist)]


def test_an_end_that_is_told_again_after_its_group_is_retired_is_acknowledged_and_counts_no_more() -> None:
    made = retired()
    counts, totals = dict(made.state.groups.counts), dict(made.state.totals)
    again = Ended(OVER, ScoreState.infra_error, None, reason="told again", is_lost=True)
    effects = tell(made, 2.0, RunnerReport("runner-0", 1, 1, -1, ended=(again, Ended("train-0-0-0-r1", ScoreState.scored, 1.0))))
    assert not [one for one in persisted(effects) if getattr(one, "ended", None) is not None]
    (told,) = [effect.message for effect in effects if isinstance(effect, Send) and isinstance(effect.message, Assignment)]
    assert set(told.acked) == {OVER, "train-0-0-0-r1"}
    assert not {OVER, "train-0-0-0-r1"} & {begin.execution for begin in told.begin}
    assert (made.state.groups.counts, made.state.totals) == (counts, totals)


def test_facts_of_a_retired_group_are_acknowledged_and_kept_nowhere() -> None:
    made = retired()
    facts = (FirstCall(OVER, Version(0, 0)), ExecutionTakenUp(OVER, 1, 10, 5.0))
    effects = tell(made, 2.0, GatewayReport("gateway-0", 1, 1, -1, 0, facts=facts), "gateway-0")
    assert not persisted(effects) and made.state.gateway_acked["gateway-0"] == 1
    assert not made.state.spared_s and not made.state.groups.is_known(OVER)


def test_a_sum_of_a_retired_update_that_is_handed_in_late_is_no_part_of_the_open_batch() -> None:
    made = retired()
    tell(made, 2.0, report("cell-1", 1, update=0, fence=made.state.fleet.cells["cell-1"].fence))
    held = (HandIn("cell-1", made.state.fleet.cells["cell-1"].fence, ("0:0", "0:1")),)
    tell(made, 2.1, report("cell-0", 1, update=0, held=held))
    assert not made.state.batch.accepted and not len(made.state.batch.ledger) and made.state.update == UPDATES + 1


def test_what_is_retired_is_in_every_checkpoint_from_then_on() -> None:
    made = retired()
    next_ones = [GroupId("train", UPDATES + 1, place) for place in range(2)]
    assert made.state.groups.consumed_with(next_ones).numbers.runs == ((0, 2 * (UPDATES + 2)),)
    assert made.state.groups.next_group("train") == next_ones[0]


def test_an_attempt_that_holds_no_more_what_a_checkpoint_lacks_ends_and_the_next_one_trains_it_again() -> None:
    made = retired()
    made.state.looked_for_checkpoint = False
    effects = made.handle(3.0, Finished("find_checkpoint", Checkpoint("checkpoints/0.2", Version(0, 2), 1)))
    assert made.state.finished and made.state.exit_code == 2 and "resume the run" in made.state.reason
    assert not [one for one in persisted(effects) if isinstance(one, LineageBegun)]
    assert [effect.fields["reason"] for effect in effects if isinstance(effect, Note) and effect.kind == "run_finished"]
    later, _ = machine(*past(), attempt=2, updates=9)
    later.handle(1.0, Finished("find_checkpoint", Checkpoint("checkpoints/0.2", Version(0, 2), 1)))
    states = [group.state for group in later.state.groups.of_purpose("train") if group.update != 1]
    assert not later.state.finished and states == [GroupState.complete] * 2 * (UPDATES - 2)


def test_without_a_checkpoint_of_every_version_only_what_the_saved_ones_hold_is_retired() -> None:
    made, _ = machine(*HISTORY[:2], checkpoint_before_publish=False, updates=20, incarnation=1)
    state, core = made.state, made.state.fleet.core
    for update in range(8):
        groups = tuple(GroupId("train", update, place) for place in range(2))
        for id in groups:
            state.groups.begin(id)
        # Every third version is saved, after it was published.
        core.report = report(core.name, 1, saved=Version(0, update - update % 3))
        publish(state, float(update), CommitIntended(update, "m", Version(0, update + 1), groups, 2), Version(0, update + 1), {})
        made.handle(float(update), Finished("forget", None))
    assert state.saved_steps == (3, 6)
    assert state.groups.retired.numbers.runs == ((0, 6),) and min(state.intents, default=2) >= 2
    assert {group.update for group in state.groups.of_purpose("train")} == {3, 4, 5, 6, 7}


def test_an_assignment_from_before_an_acknowledgement_begins_nothing_in_the_next_life_of_a_runner() -> None:
    ended = Ended(A, ScoreState.scored, 1.0, True)
    bench = Bench((Began(A), Finish(ended), Forgotten((A,), 7)))
    bench.number = 5
    bench.assign(A)
    assert not bench.report().running + bench.report().queued and bench.report().assignment == -1
    bench.number = 6
    bench.assign("train-9-0-0")
    report = bench.report()
    assert report.running == ("train-9-0-0",) and report.assignment == 7, "the very assignment that it had is told again"


def test_an_acknowledgement_of_an_earlier_life_does_not_make_a_runner_forget_the_end_of_a_later_one() -> None:
    first, second = (Ended(A, ScoreState.infra_error, None, life=life, is_lost=True) for life in (0, 1))
    bench = Bench((Began(A), Finish(first), Began(A, 1), Finish(second)))
    wanted = (Begin(A, "train", 0, 60.0, 75.0, 1),)
    bench.tell(Received("controller", Assignment(1, wanted, (A,))))
    assert bench.ended() == {A: second} and not bench.report().running
    bench.tell(Received("controller", Assignment(2, (), (f"{A}.1",))))
    assert not bench.ended()


@pytest.mark.parametrize("restarts", [False, True])
def test_a_shard_refuses_calls_of_groups_that_are_over_though_it_keeps_no_name_of_them(restarts: bool) -> None:
    world = CallWorld()
    world.set_table(row(0))
    client = Client("train-0-0-0", "main", 1, False)
    world.clients.append(client)
    world.arrive(client)
    world.settle()
    world.set_table(row(0), ended=(client.execution,))
    world.settle()
    assert world.shard.ended.num_names == 1
    if restarts:
        journal, world = world.journal, CallWorld()
        world.tell(Restarted(tuple(journal)))
    over = TrainGroups.of(2, [GroupId("train", 0, 0), GroupId("train", 0, 1)])
    world.tell(Received("controller", Table(world.table + 1, 5.0, (row(0),), over=over)))
    # An older word, which says less, takes nothing back.
    world.tell(Received("controller", Table(world.table + 1, 5.0, (row(0),))))
    assert world.shard.ended.num_names == 0 and not world.shard.trees
    for execution in ("train-0-0-0", "train-0-1-7-r1"):
        late = Client(execution, "main", 1, False)
        world.clients.append(late)
        world.arrive(late)
        refused = [action.code for action in world.actions.values() if isinstance(action, Refuse) and action.conn == late.conn]
        assert refused == ["execution_ended"] and not world.shard.live


def test_what_a_shard_was_not_told_one_by_one_ends_with_its_group() -> None:
    world = CallWorld()
    world.set_table(row(0))
    client = Client("train-0-0-0", "main", 3, False)
    world.clients.append(client)
    world.arrive(client)
    assert world.shard.live
    world.tell(Received("controller", Table(world.table + 1, 5.0, (row(0),), over=TrainGroups.of(2, [GroupId("train", 0, 0)]))))
    assert not world.shard.live and not world.shard.trees and world.shard.ended.num_names == 0
