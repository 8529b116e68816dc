"""Groups of the batch machine: which version a group may have met, and what a second try takes over."""

from gyre_hpc.machines.batch.groups import Groups
from gyre_hpc.protocol.identity import GroupId, Version


def test_a_group_counts_from_its_floor_until_every_first_call_is_known() -> None:
    groups = Groups(groups_per_batch=2, group_size=2)
    group = groups.begin(GroupId("train", 0, 0), floor=3)
    assert group.oldest_possible_step == 3
    groups.first_call(group.members[0], Version(0, 5))
    assert group.oldest_possible_step == 3, "the fact of the other execution may still be on its way"
    groups.first_call(group.members[1], Version(0, 4))
    assert group.oldest_possible_step == 4


def test_a_first_call_older_than_the_floor_counts() -> None:
    groups = Groups(groups_per_batch=2, group_size=2)
    group = groups.begin(GroupId("train", 0, 0), floor=3)
    groups.first_call(group.members[0], Version(0, 2))
    assert group.oldest_possible_step == 2


def test_after_a_second_try_the_floor_counts_again() -> None:
    groups = Groups(groups_per_batch=2, group_size=1)
    group = groups.begin(GroupId("train", 0, 0), floor=1)
    groups.first_call(group.members[0], Version(0, 2))
    groups.restart(group.members[0])
    assert group.oldest_possible_step == 1
