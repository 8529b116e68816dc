"""What the batch machine does when all goes well, in every scheduler mode (faults: simulation)."""

import msgspec
import pytest

from gyre_hpc.config.schema import SchedulerConfig, SchedulerMode, Staleness
from gyre_hpc.machines.batch.facts import curve_of
from gyre_hpc.machines.batch.watchdog import starts_late
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.to_batch import CellState
from tests.fakes.batch_world import BatchWorld


def scheduler(mode: SchedulerMode = SchedulerMode.elastic, staleness: Staleness = Staleness.wait) -> SchedulerConfig:
    return SchedulerConfig(mode=mode, staleness=staleness, lead_floor_s=0, lead_factor=0.1, dwell_s=0.5, split=1)


def finished(world: BatchWorld) -> BatchWorld:
    world.run()
    assert world.finished is not None and world.finished.exit_code == 0
    return world


@pytest.mark.parametrize("mode", list(SchedulerMode))
def test_every_mode_makes_all_updates_and_consumes_every_group_once(mode: SchedulerMode) -> None:
    world = finished(BatchWorld(scheduler=scheduler(mode)))
    applied = world.kinds("applied")
    assert [fields["update"] for fields in applied] == [0, 1, 2]
    ready = [(fields["group"], fields["update"]) for fields in world.kinds("group_ready")]
    assert sorted(update for _, update in ready) == sorted([0, 1, 2] * 4) and len({group for group, _ in ready}) == 12
    assert sorted(map(str, world.batch.state.groups.consumed_with(()))) == sorted(group for group, _ in ready)


@pytest.mark.parametrize("staleness", [Staleness.window, Staleness.wait])
def test_staleness_stays_within_the_bound(staleness: Staleness) -> None:
    world = finished(BatchWorld(scheduler=scheduler(staleness=staleness), updates=5))
    assert max(fields["staleness"] for fields in world.kinds("group_ready")) <= 1


def test_training_begins_before_the_batch_is_full() -> None:
    world = finished(BatchWorld(scheduler=scheduler(), updates=4))
    assert any(not fields["batch_full"] for fields in world.kinds("micro_batch_accumulated"))


def test_the_core_is_lent_before_any_satellite_and_recalled_after_all() -> None:
    world = finished(BatchWorld(scheduler=scheduler(), updates=4))
    training: list[str] = []
    for _, kind, fields in world.notes:
        if kind == "lend":
            assert fields["cell"] == "cell-0" or "cell-0" in training
            training.append(fields["cell"])
        elif kind == "recall":
            assert fields["cell"] != "cell-0" or training == ["cell-0"]
            training.remove(fields["cell"])
    assert any(fields["cell"] != "cell-0" for fields in world.kinds("lend"))


def test_evaluations_run_on_one_version_with_nothing_else_live() -> None:
    world = finished(BatchWorld(scheduler=scheduler()))
    live: set[str] = set()
    for _, kind, fields in world.notes:
        if kind == "execution_began":
            live.add(fields["execution"])
            assert len({execution.split("-")[0] for execution in live}) == 1
        elif kind == "execution_ended":
            live.discard(fields["execution"])
    assert {fields["slot"] for fields in world.kinds("evaluation")} == {0, 3}


def test_a_cell_that_waits_for_the_first_weights_is_not_late() -> None:
    world = BatchWorld(scheduler=scheduler())
    state = world.batch.state
    world.run(0.05)
    cell = state.fleet.cells["cell-1"]
    assert cell.report is not None
    cell.report, state.version = msgspec.structs.replace(cell.report, state=CellState.starting), None
    late = cell.started_at + 10 * state.settings.start_deadline_s
    assert not starts_late(state, cell, late)
    state.version = Version(0, 0)
    assert not starts_late(state, cell, late + 1)
    assert starts_late(state, cell, late + state.settings.start_deadline_s + 1)


def test_the_waterlevel_uses_the_measured_curve_once_there_is_enough_of_it() -> None:
    world = BatchWorld(scheduler=scheduler(), cells=2)
    world.run(1.0)
    state = world.batch.state
    assert curve_of(state.fleet.usable(), state.settings).points == ()
    for cell, factor in zip(state.fleet.cells.values(), (1.0, 3.0), strict=True):
        assert cell.report is not None
        cell.report = msgspec.structs.replace(cell.report, curve=tuple((float(n), factor * 100 * n) for n in (1, 2, 4)))
    assert curve_of(state.fleet.usable(), state.settings).points == ((1.0, 200.0), (2.0, 400.0), (4.0, 800.0))
