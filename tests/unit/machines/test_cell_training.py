"""The cell machine's sum: leases, fences, hand-ins, warm start."""

from gyre_hpc.machines.base import Progressed
from gyre_hpc.machines.cell.actions import Accumulate, FetchMicroBatch, Fit, HandInSum, InitModel, SaveCheckpoint, SleepTrainer
from gyre_hpc.protocol.identity import Role
from gyre_hpc.protocol.to_batch import CellState
from gyre_hpc.protocol.to_cell import FitOrder
from tests.fakes.cell_driver import V0, V1, CellDriver, leases

TRAIN = {"term": 1, "role": Role.train, "version": V0, "update": 0, "is_core": True}


def training(**fields: object) -> CellDriver:
    cell = CellDriver()
    cell.order(**TRAIN | fields)
    cell.settle()
    assert cell.report.state is CellState.train
    cell.ran.clear()
    return cell


def accumulated(cell: CellDriver) -> list[str]:
    return [fact.id for fact in cell.report.accumulated]


def test_leases_are_fetched_and_accumulated_one_after_another():
    cell = training()
    cell.order(**TRAIN, leases=leases("0:0", "0:1", "0:2"))
    cell.settle()
    assert cell.ran == ["accumulate"] * 3
    assert accumulated(cell) == ["0:0", "0:1", "0:2"]
    assert cell.report.train_tokens_per_s == 200.0


def test_the_next_micro_batch_is_fetched_while_one_is_accumulated():
    cell = training()
    cell.order(**TRAIN, leases=leases("0:0", "0:1"))
    cell.finish(FetchMicroBatch)
    assert cell.is_running(Accumulate) and cell.is_running(FetchMicroBatch)
    cell.finish(FetchMicroBatch)
    assert sum(isinstance(action, Accumulate) for action in cell.running.values()) == 1


def test_a_lease_that_is_listed_again_is_not_accumulated_twice():
    cell = training()
    for _ in range(3):
        cell.order(**TRAIN, leases=leases("0:0"))
        cell.settle()
    assert accumulated(cell) == ["0:0"]


def test_a_lease_no_longer_listed_and_not_begun_is_dropped():
    cell = training()
    cell.order(**TRAIN, leases=leases("0:0", "0:1"))
    cell.finish(FetchMicroBatch)
    cell.order(**TRAIN, leases=())
    assert not cell.is_running(FetchMicroBatch)
    cell.settle()
    assert accumulated(cell) == ["0:0"], "the one in progress is finished"


def test_a_new_fence_forgets_everything_and_the_ids_may_come_again():
    cell = training()
    cell.order(**TRAIN, leases=leases("0:0", "0:1"))
    cell.finish(FetchMicroBatch)
    cell.order(**TRAIN, fence=1, leases=leases("0:0"))
    cell.finish(Accumulate)
    assert accumulated(cell) == [] or cell.report.fence == 0
    cell.settle()
    assert (cell.report.fence, accumulated(cell)) == (1, ["0:0"])
    assert cell.body.total == ["0:0"]


def test_a_failed_fetch_is_said_and_tried_again():
    cell = training()
    cell.order(**TRAIN, leases=leases("0:0"))
    cell.fail(FetchMicroBatch, "404")
    assert "fetch of micro-batch 0:0" in cell.report.error
    cell.settle()
    assert accumulated(cell) == ["0:0"] and cell.report.error == ""


def test_a_micro_batch_that_failed_closes_the_sum_until_a_new_fence():
    cell = training()
    cell.order(**TRAIN, leases=leases("0:0", "0:1"))
    cell.finish(FetchMicroBatch)
    cell.fail(Accumulate, "NaN", "FloatingPointError")
    cell.settle()
    assert accumulated(cell) == [] and cell.body.total == []
    assert "new fence" in cell.report.waiting
    cell.order(**TRAIN, fence=1, leases=leases("0:0", "0:1"))
    cell.settle()
    assert accumulated(cell) == ["0:0", "0:1"]


def with_sum() -> CellDriver:
    cell = training()
    cell.order(**TRAIN, leases=leases("0:0", "0:1"))
    cell.settle()
    cell.ran.clear()
    return cell


def test_a_recalled_cell_hands_its_sum_in_before_the_trainer_sleeps():
    cell = with_sum()
    cell.order(**TRAIN | {"term": 2, "role": Role.rollout}, hand_in_to="http://core")
    assert cell.is_running(HandInSum) and cell.report.state is CellState.handing_in
    assert not cell.report.handed_in
    cell.settle()
    assert cell.ran == ["hand_in_sum", "sleep_trainer", "wake_engine", "open_admission"]
    assert cell.report.handed_in and cell.report.accumulated == ()
    assert cell.states[-4:] == [CellState.train, CellState.handing_in, CellState.switching, CellState.rollout]


def test_a_sum_that_was_handed_in_is_never_added_to_under_the_same_fence():
    cell = with_sum()
    cell.order(**TRAIN | {"term": 2, "role": Role.rollout}, hand_in_to="http://core")
    cell.settle()
    cell.order(**TRAIN | {"term": 3}, leases=leases("0:5"))
    cell.settle()
    assert cell.report.accumulated == () and "new fence" in cell.report.waiting
    cell.order(**TRAIN | {"term": 3}, fence=1, leases=leases("0:5"))
    cell.settle()
    assert accumulated(cell) == ["0:5"]


def test_a_hand_in_that_keeps_failing_holds_the_role_change_up_no_longer_than_its_deadline():
    cell = with_sum()
    cell.order(**TRAIN | {"term": 2, "role": Role.rollout}, hand_in_to="http://core")
    cell.fail(HandInSum)
    assert cell.report.error.startswith("hand_in_sum")
    cell.fire("step_retry")
    assert cell.is_running(HandInSum)
    cell.now += 100
    cell.fail(HandInSum)
    assert cell.is_running(SleepTrainer)
    cell.settle()
    assert cell.report.state is CellState.rollout and cell.report.handed_in, "the kept sum went in later"


def test_a_sum_outlives_a_role_change_in_host_memory():
    cell = with_sum()
    cell.order(**TRAIN | {"term": 2, "role": Role.rollout})
    cell.settle()
    assert accumulated(cell) == ["0:0", "0:1"] and cell.report.state is CellState.rollout
    cell.order(**TRAIN | {"term": 3}, leases=leases("0:2"))
    cell.settle()
    assert accumulated(cell) == ["0:0", "0:1", "0:2"] == cell.body.total


def test_a_kept_sum_of_an_older_fence_is_not_restored():
    cell = with_sum()
    cell.order(**TRAIN | {"term": 2, "role": Role.rollout})
    cell.settle()
    cell.order(**TRAIN | {"term": 2, "role": Role.rollout}, fence=1)
    cell.settle()
    assert (cell.report.fence, cell.report.accumulated) == (1, ())
    cell.order(**TRAIN | {"term": 3}, fence=1, leases=leases("0:2"))
    cell.settle()
    assert cell.body.total == ["0:2"]


FIT = FitOrder(id="warm-1", urls=("http://controller/micro_batches/warm:0",), epochs=2, version=V0)


def test_a_warm_start_fits_reports_progress_and_counts_when_its_checkpoint_stands():
    cell = CellDriver()
    cell.order(term=1, role=Role.train, is_core=True, fit=FIT)
    while not cell.is_running(Fit):
        cell.end(next(iter(cell.running)))
    cell.feed(Progressed(cell.key_of(Fit), 0.5))
    assert cell.report.fit_progress == 0.5
    cell.finish(Fit)
    assert cell.is_running(SaveCheckpoint) and cell.report.fitted == ""
    cell.settle()
    assert (cell.report.fitted, cell.report.version, cell.report.fit_progress) == ("warm-1", V0, 1.0)
    assert V0 in cell.body.checkpoints


def test_a_warm_start_begins_from_parameters_that_are_not_its_own_version():
    for version in (None, V0):
        cell = CellDriver()
        cell.order(term=1, role=Role.train, is_core=True, version=version, fit=FIT)
        assert cell.is_running(InitModel)
        assert cell.body.store == set()
        cell.settle()
        assert cell.ran.count("fit") == 1 and cell.ran[:2] == ["init_model", "wake_trainer"]


def test_a_finished_warm_start_is_only_reported_again():
    cell = CellDriver()
    cell.order(term=1, role=Role.train, is_core=True, version=V0, fit=FIT)
    cell.settle()
    for version in (V0, None):
        cell.order(term=1, role=Role.train, is_core=True, version=version, fit=FIT)
        cell.settle()
    assert cell.ran.count("fit") == 1 and cell.report.fitted == "warm-1"
    cell.order(term=2, role=Role.rollout, is_core=True, version=V0)
    cell.settle()
    assert (cell.report.state, cell.report.version) == (CellState.rollout, V0)


def test_an_order_older_than_the_fit_does_not_take_the_fitted_weights_away():
    cell = CellDriver()
    cell.order(term=1, role=Role.train, is_core=True, version=V0)
    cell.settle()
    fit = FitOrder(id="warm-2", urls=("u",), epochs=1, version=V1)
    cell.order(term=1, role=Role.train, is_core=True, version=V0, fit=fit)
    cell.settle()
    assert cell.report.version == V1 and cell.ran.count("wake_trainer") == 1
