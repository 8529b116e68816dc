"""Groups of the batch machine: which version a group may have met, and what a second try takes over."""

import msgspec

from gyre_hpc.config.schema import SchedulerConfig
from gyre_hpc.machines.batch.fleet import Move
from gyre_hpc.machines.batch.groups import Groups
from gyre_hpc.protocol.identity import GroupId, Version
from gyre_hpc.protocol.to_batch import CellState
from tests.fakes.batch_world import BatchWorld


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


def test_a_cell_still_open_under_an_older_term_counts_as_served() -> None:
    world = BatchWorld(scheduler=SchedulerConfig(), cells=2)
    world.run(1.0)
    fleet = world.batch.state.fleet
    cell = fleet.cells["cell-1"]
    assert cell.report is not None
    cell.report = msgspec.structs.replace(cell.report, state=CellState.rollout, version=Version(0, -1), term=cell.term)
    cell.in_table = False
    assert fleet.oldest_served_step() == 0, "closed to every table there is"
    cell.move = Move.leaving
    assert fleet.oldest_served_step() == -1, "its leaving is not acknowledged"
    cell.move = Move.none
    cell.term += 1
    assert fleet.oldest_served_step() == -1, "it has not obeyed the new term: an older table still leads to it"
