"""What machines keep follows what is open, not how much there ever was: twenty more updates leave the same number of objects."""

from dataclasses import dataclass

import pytest

from gyre_hpc.config.schema import SchedulerConfig
from gyre_hpc.machines.base import Finished
from gyre_hpc.machines.cell import CellSettings
from gyre_hpc.machines.execution import Scored
from gyre_hpc.protocol.identity import GroupId, Role, Version
from gyre_hpc.protocol.to_cell import ApplyOrder, CommitOrder
from gyre_hpc.protocol.train_groups import TrainGroups
from tests.fakes.batch_world import BatchWorld
from tests.fakes.cell_driver import CellDriver, leases
from tests.fakes.execution_bench import WELL, Bench
from tests.fakes.kept import num_kept

FEW = 40
"""Numbers that are other objects once they are large, and what happens to be under way."""


def test_what_is_counted_is_what_is_kept() -> None:
    @dataclass(slots=True)
    class Keeper:
        names: dict[str, list[float]]

    small = num_kept(Keeper({}))
    assert num_kept(Keeper({f"name {number}": [number + 0.5] for number in range(100)})) == small + 300


@pytest.mark.parametrize("before_publish", [True, False])
def test_a_controller_keeps_as_much_after_many_updates_as_after_some(before_publish: bool) -> None:
    kept = {}
    for updates in (8, 28):
        world = BatchWorld(scheduler=SchedulerConfig(), updates=updates, checkpoint_before_publish=before_publish)
        world.run(limit_s=600.0)
        assert world.finished is not None and world.finished.exit_code == 0 and len(world.kinds("applied")) == updates
        state, groups = world.batch.state, world.batch.state.groups
        # Who ended is told for 15 s: that is longer than all of this takes.
        state.recently_ended, state.table_rows, state.tables = {}, None, {}
        assert [len(groups.consumed_with(())), len(groups.retired.numbers.runs)] == [4 * updates, 1]
        assert len(groups.of_purpose("train")) <= 4 * 2 and len(state.intents) <= 3
        kept[updates] = num_kept(world.batch)
    assert kept[28] < kept[8] + FEW, "80 more groups, 160 more executions"


def ends(bench: Bench, executions: list[str]) -> None:
    for execution in executions:
        bench.running(execution)
        bench.tell(Finished(f"run/{execution}", WELL))
        bench.tell(Finished(f"score/{execution}", Scored(1.0, True)))
        assert execution in bench.ended()
        bench.assign(acked=(execution,))
        bench.tell(Finished(f"clean/{execution}"))


def test_a_runner_keeps_nothing_of_executions_whose_ends_are_known() -> None:
    bench = Bench()
    ends(bench, [f"train-{number}-0-0" for number in range(5)])
    before = num_kept(bench.machine)
    ends(bench, [f"train-{number}-0-0" for number in range(5, 105)])
    assert num_kept(bench.machine) < before + FEW
    again = Bench(tuple(bench.log))
    assert num_kept(again.machine) < before + FEW and not again.ended()


def make_update(cell: CellDriver, update: int) -> None:
    now, after = Version(0, update), Version(0, update + 1)
    base = {"term": 1, "role": Role.train, "version": now, "update": update, "is_core": True}
    cell.order(**base, leases=leases(f"{update}:0"))
    cell.settle()
    commit = CommitOrder(update + 1, ("cell-0",), "local", "", True)
    cell.order(**base, commit=commit)
    cell.settle()
    consumed = TrainGroups.of(4, [GroupId("train", slot, group) for slot in range(update + 1) for group in range(4)])
    apply = ApplyOrder(update=update, manifest_hash=f"{update}", num_executions=8, version=after, consumed=consumed)
    cell.order(**base, commit=commit, apply=apply)
    cell.settle()
    assert cell.report.applied is not None and cell.report.applied.update == update
    # The shell's store keeps the two newest.
    cell.body.store = {version for version in cell.body.store if version.step >= update}


def test_a_core_keeps_as_much_after_many_updates_as_after_some() -> None:
    cell = CellDriver(CellSettings(name="cell-0", incarnation=1))
    for update in range(4):
        make_update(cell, update)
    before = num_kept(cell.machine)
    for update in range(4, 24):
        make_update(cell, update)
    assert num_kept(cell.machine) < before + FEW
