"""The size of what the batch machine keeps and goes through follows what is not consumed, not how long the run has been."""

from gyre_hpc.machines.base import Effect, Finished, Start
from gyre_hpc.machines.batch.actions import Checkpoint, ForgetMicroBatches
from gyre_hpc.machines.batch.consolidation import publish
from gyre_hpc.machines.batch.groups import Group, Groups, GroupState
from gyre_hpc.machines.batch.records import CommitIntended, ExecutionRestarted, GroupBegun, Published
from gyre_hpc.protocol.identity import GroupId, Version
from gyre_hpc.protocol.to_batch import ScoreState
from tests.fakes.batch_bench import HISTORY, ended, machine

UPDATES = 5


def past(updates: int = UPDATES) -> list[object]:
    """Records of so many updates of two groups of one execution; the first execution of each update had to be begun twice."""
    records: list[object] = [*HISTORY[:2]]
    for update in range(updates):
        groups = tuple(GroupId("train", update, place) for place in range(2))
        first = f"{groups[0]}-0"
        records += [GroupBegun(id, update) for id in groups]
        records += [
            ended(first, ScoreState.infra_error),
            ExecutionRestarted(first, f"{first}-r1"),
            ended(f"{first}-r1"),
            ended(f"{groups[1]}-0"),
        ]
        records += [CommitIntended(update, f"{update}", Version(0, update + 1), groups, 2), Published(Version(0, update + 1), update)]
    return records


def forgotten(effects: list[Effect]) -> list[ForgetMicroBatches]:
    return [effect.action for effect in effects if isinstance(effect, Start) and isinstance(effect.action, ForgetMicroBatches)]


def tried(update: int) -> list[str]:
    return [f"train-{update}-0-0-r1", f"train-{update}-0-0", f"train-{update}-1-0"]


def test_a_new_attempt_forgets_what_no_checkpoint_it_may_go_back_to_needs() -> None:
    made, _ = machine(*past(), attempt=2, checkpoints_kept=2, updates=9)
    newest = Checkpoint(
        "checkpoints/0.5", Version(0, UPDATES), UPDATES - 1, consumed=tuple(f"train-{update}-1-0" for update in range(UPDATES))
    )
    (action,) = forgotten(made.handle(1.0, Finished("find_checkpoint", newest)))
    assert action.update == UPDATES
    assert list(action.executions) == [execution for update in range(UPDATES - 1) for execution in tried(update)]


def test_an_update_forgets_the_one_that_its_checkpoint_pushed_out_and_each_once() -> None:
    made, _ = machine(*past(3), checkpoints_kept=2, updates=9)
    for update in range(3, 6):
        groups = tuple(GroupId("train", update, place) for place in range(2))
        for id in groups:
            made.state.groups.begin(id)
        intent = CommitIntended(update, f"{update}", Version(0, update + 1), groups, 2)
        (action,) = forgotten(publish(made.state, float(update), intent, Version(0, update + 1), {}))
        made.handle(float(update), Finished("forget", None))
        oldest = range(update) if update == 3 else range(update - 1, update)
        assert {execution.split("-")[1] for execution in action.executions} == {str(one) for one in oldest}


def test_without_a_checkpoint_of_every_version_nothing_is_forgotten() -> None:
    made, _ = machine(*past(), attempt=2, checkpoint_before_publish=False, updates=9)
    (action,) = forgotten(made.handle(1.0, Finished("find_checkpoint", Checkpoint("checkpoints/0.3", Version(0, 3), 2))))
    assert action == ForgetMicroBatches(3)


def test_whoever_asks_for_open_groups_goes_through_no_consumed_ones() -> None:
    groups = Groups(2, 1)
    made = [groups.begin(groups.next_group("train")) for _ in range(100)]
    for group in made[:97]:
        group.state = GroupState.consumed
    made[97].state = GroupState.complete
    assert (groups.in_state(GroupState.begun), groups.in_state(GroupState.complete)) == (made[98:], [made[97]])
    assert groups.num_gone_through == 3
    assert groups.in_state(GroupState.consumed) == made[:97]


def test_groups_that_are_to_be_trained_again_are_open_again_in_their_order() -> None:
    groups = Groups(2, 1)
    made: list[Group] = [groups.begin(groups.next_group("train")) for _ in range(6)]
    for number, group in enumerate(made[:4]):
        group.state, group.update = GroupState.consumed, number // 2
    assert groups.in_state(GroupState.begun) == made[4:]
    groups.unconsume_from(1)
    assert groups.in_state(GroupState.complete) == made[2:4]
    assert groups.in_state(GroupState.consumed) == made[:2]


def test_groups_of_a_trial_are_counted_without_going_through_all_others() -> None:
    groups = Groups(2, 1)
    for _ in range(4):
        groups.begin(groups.next_group("train"))
    for slot in (0, 3):
        for number in range(3):
            assert groups.next_group("eval", slot) == GroupId("eval", slot, number)
            groups.begin(groups.next_group("eval", slot))
    assert [group.id.group for group in groups.of_purpose("eval", 3)] == [0, 1, 2]
    assert len(groups.of_purpose("eval")) == 6
