"""A step that failed may have been done all the same: then engine and trainer could be awake together."""

from gyre_hpc.machines.cell.actions import AbortLive, CloseAdmission, SleepEngine, SleepTrainer, WakeEngine, WakeTrainer
from gyre_hpc.protocol.identity import Role
from tests.fakes.cell_driver import V0, CellDriver, serving


def until_running(cell: CellDriver, kind: type) -> None:
    for step in (CloseAdmission, AbortLive, SleepEngine, SleepTrainer, WakeTrainer, WakeEngine):
        if cell.is_running(kind):
            return
        if cell.is_running(step):
            cell.finish(step)
    assert cell.is_running(kind)


def test_a_trainer_whose_waking_failed_is_put_to_sleep_before_the_engine_wakes():
    """Nobody knows whether it is awake."""
    cell = serving()
    cell.order(term=2, role=Role.train, version=V0, update=0, is_core=True)
    until_running(cell, WakeTrainer)
    cell.fail(WakeTrainer, "rank 1 did not answer", "CellLost")
    cell.ran.clear()
    cell.order(term=3, role=Role.rollout, version=V0, is_core=True)
    cell.settle()
    assert cell.ran == ["sleep_trainer", "wake_engine", "open_admission"]


def test_an_engine_whose_waking_failed_is_put_to_sleep_before_the_trainer_wakes():
    cell = serving()
    cell.order(term=2, role=Role.train, version=V0, update=0, is_core=True)
    cell.settle()
    cell.order(term=3, role=Role.rollout, version=V0, is_core=True)
    until_running(cell, WakeEngine)
    cell.fail(WakeEngine, "rank 1 did not answer", "CellLost")
    cell.ran.clear()
    cell.order(term=4, role=Role.train, version=V0, update=0, is_core=True)
    cell.settle()
    assert cell.ran == ["sleep_engine", "wake_trainer"]
