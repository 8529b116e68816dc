"""A cell trains only when every rank has let go of its engine's memory (faults.md C2, C3)."""

from gyre_hpc.machines.cell import CellSettings
from gyre_hpc.machines.cell.actions import AbortLive, CloseAdmission, SleepEngine, WakeEngine
from gyre_hpc.protocol.identity import Role
from gyre_hpc.protocol.to_batch import CellState, RankMemory
from tests.fakes.cell_driver import V0, CellDriver


def leaving(limit: int = 100) -> CellDriver:
    """Two ranks whose engine is told to sleep; rank 1 ignores it and goes on using 500 bytes."""
    cell = CellDriver(CellSettings(name="cell-0", incarnation=1, ranks=2, memory_limit=limit))
    cell.order(term=1, role=Role.rollout, version=V0, is_core=True)
    cell.settle()
    cell.body.used = {1: 500}
    cell.order(term=2, role=Role.train, version=V0, update=0, is_core=True)
    for kind in (CloseAdmission, AbortLive, SleepEngine):
        cell.finish(kind)
    return cell


def test_a_rank_that_keeps_its_memory_is_named_with_its_figure_and_the_limit() -> None:
    cell = leaving()
    assert not cell.running, "the trainer does not wake"
    assert "rank 1 uses 500 bytes" in cell.report.error and "the limit is 100" in cell.report.error
    assert "rank 0" not in cell.report.error
    assert cell.report.state is CellState.switching and "sleep_engine" in cell.report.waiting


def test_the_engine_is_told_to_sleep_again_until_the_memory_is_free() -> None:
    cell = leaving()
    cell.fire("step_retry")
    cell.finish(SleepEngine)
    assert not cell.running and "rank 1 uses 500 bytes" in cell.report.error
    cell.body.used = {}
    cell.settle()
    assert cell.report.state is CellState.train and cell.report.error == ""


def test_the_limit_says_nothing_about_going_back_to_rollout() -> None:
    cell = leaving()
    cell.order(term=3, role=Role.rollout, version=V0, is_core=True)
    assert cell.is_running(WakeEngine)
    cell.settle()
    assert cell.report.state is CellState.rollout and cell.report.error == ""
    cell.order(term=4, role=Role.train, version=V0, update=0, is_core=True)
    for kind in (CloseAdmission, AbortLive, SleepEngine):
        cell.finish(kind)
    assert not cell.running and "rank 1" in cell.report.error, "the next departure measures anew"


def test_without_a_limit_the_figures_are_only_shown() -> None:
    cell = leaving(limit=0)
    cell.settle()
    assert cell.report.state is CellState.train
    assert cell.report.memory_after["sleep_engine"] == (RankMemory(0, 2, 1), RankMemory(1, 2, 500))


def test_what_every_rank_used_before_and_after_each_direction_is_kept() -> None:
    cell = leaving(limit=0)
    cell.settle()
    cell.order(term=3, role=Role.rollout, version=V0, is_core=True)
    cell.settle()
    assert set(cell.report.memory_after) == {"wake_engine", "sleep_engine", "wake_trainer", "sleep_trainer"}
    assert all([figure.rank for figure in figures] == [0, 1] for figures in cell.report.memory_after.values())


def test_an_engine_of_which_one_rank_is_silent_is_told_to_sleep_again_before_it_can_wake() -> None:
    cell = CellDriver(CellSettings(name="cell-0", incarnation=1, ranks=2))
    cell.order(term=1, role=Role.rollout, version=V0, is_core=True)
    cell.settle()
    cell.order(term=2, role=Role.train, version=V0, update=0, is_core=True)
    for kind in (CloseAdmission, AbortLive):
        cell.finish(kind)
    cell.finish(SleepEngine, (RankMemory(0, 2, 1),))
    assert "no acknowledgement of rank 1" in cell.report.error
    cell.order(term=3, role=Role.rollout, version=V0, is_core=True)
    cell.fire("step_retry")
    assert cell.is_running(SleepEngine), "admission must not open over an engine that is half asleep"
    cell.finish(SleepEngine)
    assert cell.is_running(WakeEngine)
    cell.settle()
    assert cell.report.state is CellState.rollout
