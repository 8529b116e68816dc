"""The cell machine's role switch: order of steps, acknowledgements, newer orders in mid-switch, weights."""

from gyre_hpc.machines.cell import CellSettings
from gyre_hpc.machines.cell.actions import (
    AbortLive,
    CloseAdmission,
    InitModel,
    LoadCheckpoint,
    Measure,
    PullSnapshot,
    SleepEngine,
    SleepTrainer,
    UpdateEngineWeights,
    WakeEngine,
    WakeTrainer,
)
from gyre_hpc.protocol.identity import Role
from gyre_hpc.protocol.to_batch import CellState
from tests.fakes.cell_driver import V0, V1, CellDriver, serving


def test_a_new_core_makes_the_first_version_and_serves_it():
    cell = CellDriver()
    cell.order(term=4, version=V0, is_core=True)
    cell.settle()
    assert cell.ran == ["init_model", "wake_engine", "open_admission"]
    assert (cell.report.state, cell.report.term, cell.report.version) == (CellState.rollout, 4, V0)
    assert cell.report.snapshots == (V0,)


def test_a_satellite_without_a_source_waits_and_says_for_what():
    cell = CellDriver()
    cell.order(version=V0)
    cell.settle()
    assert cell.report.state is CellState.starting
    assert "source of version 0.0" in cell.report.waiting


def test_a_core_given_a_checkpoint_loads_it_rather_than_pulling_weights_alone():
    cell = CellDriver()
    cell.order(version=V1, is_core=True, checkpoint="checkpoints/0.1", sources=("http://other",))
    cell.settle()
    assert cell.ran[0] == "load_checkpoint"


def test_rollout_to_train_takes_the_steps_in_order_and_times_them():
    cell = serving()
    cell.order(term=2, role=Role.train, version=V0, update=0, is_core=True)
    cell.settle()
    assert cell.ran == ["close_admission", "abort_live", "sleep_engine", "wake_trainer"]
    assert cell.states[-4:] == [CellState.rollout, CellState.draining, CellState.switching, CellState.train]
    switch = cell.report.switch
    assert switch is not None and (switch.term, switch.direction) == (2, "rollout_to_train")
    assert list(switch.steps) == ["close_admission", "abort_live", "sleep_engine", "wake_trainer"]
    assert all(seconds > 0 for seconds in switch.steps.values())


def test_train_to_rollout_sleeps_the_trainer_before_the_engine_wakes_and_admission_opens_last():
    cell = serving()
    cell.order(term=2, role=Role.train, version=V0, update=0)
    cell.settle()
    cell.ran.clear()
    cell.order(term=3, role=Role.rollout, version=V0, update=0)
    cell.settle()
    assert cell.ran == ["sleep_trainer", "wake_engine", "open_admission"]
    assert cell.body.admission == 3
    assert cell.report.switch is not None and cell.report.switch.direction == "train_to_rollout"


def test_the_snapshot_is_pulled_before_the_trainer_wakes():
    cell = serving()
    cell.order(term=2, role=Role.train, version=V1, sources=("http://core",), update=1)
    for kind in (CloseAdmission, AbortLive, SleepEngine):
        cell.finish(kind)
    assert cell.is_running(PullSnapshot) and not cell.is_running(WakeTrainer)
    assert "pull of snapshot 0.1" in cell.report.waiting or cell.machine.state.waiting
    cell.finish(PullSnapshot)
    assert cell.is_running(WakeTrainer)
    cell.settle()
    assert cell.report.switch is not None and "pull" in cell.report.switch.steps


def test_live_requests_after_an_abort_keep_the_engine_awake():
    cell = serving()
    cell.order(term=2, role=Role.train, version=V0)
    cell.finish(CloseAdmission)
    cell.finish(AbortLive, 3)
    assert not cell.is_running(SleepEngine)
    assert "3 requests are still live" in cell.report.error
    cell.fire("step_retry")
    cell.finish(AbortLive)
    assert cell.is_running(SleepEngine) and cell.report.error == ""


def test_a_role_change_needs_the_memory_figure_of_every_rank():
    cell = CellDriver(CellSettings(name="cell-0", incarnation=1, ranks=2))
    cell.order(version=V0, is_core=True)
    cell.finish(InitModel)
    cell.finish(WakeEngine, cell.machine.state.body.memory)
    assert "rank 0, 1" in cell.report.error
    assert cell.report.state is CellState.starting


def test_a_newer_order_waits_for_the_running_step_and_then_turns_round():
    cell = serving()
    cell.order(term=2, role=Role.train, version=V0)
    assert cell.is_running(CloseAdmission)
    cell.order(term=3, role=Role.rollout, version=V0)
    assert cell.is_running(CloseAdmission) and len(cell.running) == 1
    cell.settle()
    assert cell.ran == ["close_admission", "open_admission"]
    assert cell.body.admission == 3
    assert cell.report.switch is None, "a role change that was taken back is no switch"


def test_a_newer_order_after_the_engine_slept_wakes_it_again_without_the_trainer():
    cell = serving()
    cell.order(term=2, role=Role.train, version=V0)
    cell.finish(CloseAdmission)
    cell.finish(AbortLive)
    cell.order(term=3, role=Role.rollout, version=V0)
    cell.settle()
    assert cell.ran == ["close_admission", "abort_live", "sleep_engine", "wake_engine", "open_admission"]


def test_a_newer_order_while_the_trainer_wakes_puts_it_to_sleep_before_the_engine_wakes():
    cell = serving()
    cell.order(term=2, role=Role.train, version=V0)
    for kind in (CloseAdmission, AbortLive, SleepEngine):
        cell.finish(kind)
    cell.order(term=3, role=Role.rollout, version=V0)
    cell.settle()
    assert cell.ran[3:] == ["wake_trainer", "sleep_trainer", "wake_engine", "open_admission"]


def test_older_documents_and_lower_terms_are_ignored():
    cell = serving()
    newest = cell.order(term=5, role=Role.rollout, version=V0)
    cell.settle()
    for seq, term in ((newest.seq, 5), (newest.seq - 1, 6), (newest.seq + 1, 4)):
        cell.seq = seq - 1
        cell.order(term=term, role=Role.train, version=V0)
    cell.settle()
    assert cell.report.state is CellState.rollout and cell.report.term == 5


def test_weights_are_updated_while_serving_without_closing_admission():
    cell = serving()
    cell.order(term=1, version=V1, sources=("http://core",))
    cell.finish(PullSnapshot)
    assert cell.is_running(UpdateEngineWeights) and cell.body.admission == 1
    cell.settle()
    assert cell.report.version == V1
    assert cell.ran == ["update_engine_weights"]


def test_a_failed_pull_keeps_the_old_version_serving_and_is_tried_again():
    cell = serving()
    cell.order(term=1, version=V1, sources=("http://core",))
    cell.fail(PullSnapshot, "no source answers")
    assert (cell.report.version, cell.report.state) == (V0, CellState.rollout)
    assert "no source answers" in cell.report.error
    assert not cell.is_running(PullSnapshot)
    cell.fire("pull_retry")
    cell.finish(PullSnapshot)
    cell.settle()
    assert cell.report.version == V1 and cell.report.error == ""


def test_a_pull_that_never_ends_is_stopped_at_its_deadline():
    cell = serving()
    cell.order(term=1, version=V1, sources=("http://core",))
    cell.fire("pull_deadline")
    assert not cell.is_running(PullSnapshot)
    assert "missed its deadline" in cell.report.error


def test_a_step_past_its_deadline_is_reported_by_name():
    cell = serving()
    cell.order(term=2, role=Role.train, version=V0)
    cell.fire("step_deadline")
    assert cell.report.error == "close_admission missed its deadline"
    cell.settle()
    assert cell.report.state is CellState.train and cell.report.error == ""


def test_a_trainer_that_fails_to_wake_is_tried_again_by_timer():
    cell = serving()
    cell.order(term=2, role=Role.train, version=V0)
    for kind in (CloseAdmission, AbortLive, SleepEngine):
        cell.finish(kind)
    cell.fail(WakeTrainer, "out of memory", "RuntimeError")
    assert "wake_trainer: RuntimeError: out of memory" in cell.report.error
    assert not cell.running
    cell.settle()
    assert cell.report.state is CellState.train


def test_admission_opens_again_under_a_newer_term():
    cell = serving()
    cell.order(term=9, version=V0)
    cell.settle()
    assert cell.body.admission == 9 and cell.ran == ["open_admission"]


def test_orders_of_anybody_else_are_no_orders():
    cell = CellDriver()
    from gyre_hpc.machines.base import Received
    from gyre_hpc.protocol.to_cell import Order

    cell.feed(Received("gateway-0", Order(seq=1, term=1, role=Role.rollout, version=V0, is_core=True)))
    assert not cell.running or not cell.is_running(InitModel)
    assert cell.report.waiting == "a first order"


def test_the_trainer_takes_new_weights_without_leaving_its_role():
    cell = serving()
    cell.order(term=2, role=Role.train, version=V0, update=0)
    cell.settle()
    cell.ran.clear()
    cell.order(term=2, role=Role.train, version=V1, sources=("http://core",), update=1)
    cell.settle()
    assert cell.ran == ["wake_trainer", "zero_sum"]
    assert not cell.is_running(SleepTrainer) and cell.report.version == V1


def test_a_cell_that_cannot_be_looked_at_says_that_it_is_broken_until_it_can() -> None:
    cell = serving()
    cell.fire("heartbeat")
    cell.fail(Measure, "rank 1 does not answer", "CellLost")
    assert "rank 1 does not answer" in cell.report.error and "rank 1 does not answer" in cell.report.broken
    cell.beat()
    assert cell.report.error == cell.report.broken == ""


def test_a_checkpoint_that_cannot_be_read_is_no_fault_of_the_cell() -> None:
    cell = CellDriver()
    cell.order(version=V1, is_core=True, checkpoint="checkpoints/0.1")
    cell.fail(LoadCheckpoint, "no such file", "FileNotFoundError")
    assert "no such file" in cell.report.error and cell.report.broken == ""


def test_a_look_that_never_ends_is_said_too() -> None:
    cell = serving()
    for _ in range(30):
        cell.fire("heartbeat")
    assert "no answer within 10 s" in cell.report.broken
    cell.finish(Measure)
    assert cell.report.broken == ""


def test_an_engine_that_takes_no_weights_is_broken_and_a_pull_that_fails_is_not() -> None:
    cell = serving()
    cell.order(term=1, version=V1, sources=("http://core",))
    cell.fail(PullSnapshot, "no source answers")
    assert cell.report.error and not cell.report.broken
    cell.fire("pull_retry")
    cell.finish(PullSnapshot)
    cell.fail(UpdateEngineWeights, "shape", "ValueError")
    assert "update_engine_weights: ValueError: shape" in cell.report.broken
    cell.settle()
    assert cell.report.broken == "" and cell.report.version == V1
