"""An orderly stop waits for the last save: what is asked, who answers, and every way in which the wait ends."""

import msgspec

from gyre_hpc.machines.base import Effect, Send, TimerFired
from gyre_hpc.machines.batch.status import waits_of
from gyre_hpc.machines.cell import CellSettings
from gyre_hpc.machines.cell.actions import AppliedRecord, Apply, HostGroup, Reduce, SaveCheckpoint
from gyre_hpc.machines.supervision import SUPERSEDED, SpawnProcess, TerminateProcess
from gyre_hpc.machines.supervision.settings import STOPPED
from gyre_hpc.protocol.identity import Role, Version
from gyre_hpc.protocol.supervision import FinishRun, RestartCell, SaveAnswer, SaveNow
from gyre_hpc.protocol.to_cell import CommitOrder, Order
from tests.fakes.batch_bench import FIRST, HISTORY, machine, report, tell
from tests.fakes.cell_driver import V0, V1, CellDriver, leases
from tests.unit.machines.test_cell_commit import APPLY, CONSUMED, TWO
from tests.unit.machines.test_supervision import SETTINGS, Bench, actions, live_bench, timers

STOP = FinishRun(STOPPED, "SIGUSR2")
SECOND = Version(0, 1)


def asked(effects: list[Effect]) -> list[object]:
    return [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, SaveNow)]


def ended(effects: list[Effect]) -> set[str]:
    return {action.process for action in actions(effects, TerminateProcess)}


def stopping() -> Bench:
    """A live run that was told to stop and asks its controller."""
    bench = live_bench()
    effects = bench.from_controller(STOP)
    assert asked(effects) == [SaveNow("SIGUSR2")] and not ended(effects)
    assert timers(effects)["save"] == SETTINGS.save_answer_s
    return bench


def test_a_stop_ends_nobody_before_the_controller_said_that_all_is_saved() -> None:
    bench = stopping()
    waits = bench.from_controller(SaveAnswer(20.0, "0.4 is being saved"))
    assert timers(waits)["save"] == 20.0 and not ended(waits)
    assert ended(bench.from_controller(SaveAnswer(0.0, "0.4 is saved"))) == {"controller"}
    assert ended(bench.exits("controller", code=0)) >= {"cell-0", "gateway-0"}


def test_the_question_is_asked_again_and_the_first_answer_sets_the_bound() -> None:
    bench = stopping()
    assert asked(bench.tell(TimerFired("save_again"))) == [SaveNow("SIGUSR2")]
    assert timers(bench.from_controller(SaveAnswer(1e6, "")))["save"] == SETTINGS.save_s
    assert "save" not in timers(bench.from_controller(SaveAnswer(50.0, "")))


def test_the_wait_ends_by_the_timer_a_second_stop_or_the_controllers_end() -> None:
    assert ended(stopping().tell(TimerFired("save"))) == {"controller"}
    assert ended(stopping().from_controller(STOP)) == {"controller"}
    assert ended(stopping().exits("controller")) >= {"cell-0", "runner-0"}


def test_while_a_save_is_waited_for_nothing_is_started() -> None:
    bench = live_bench()
    waiting = timers(bench.exits("runner-0"))
    assert "backoff/runner-0/1" in waiting
    bench.from_controller(STOP)
    effects = bench.tell(TimerFired("backoff/runner-0/1")) + bench.from_controller(RestartCell("cell-1", 1, "lost"))
    assert not actions(effects + bench.exits("gateway-0"), SpawnProcess)


def test_only_a_stop_waits_and_only_for_a_controller_that_lives() -> None:
    assert not asked(live_bench().from_controller(FinishRun(SUPERSEDED, "")))
    assert not asked(live_bench().from_controller(FinishRun(0, "all updates made")))
    bench = Bench()
    assert not asked(bench.from_controller(STOP))


TRAIN = {"term": 1, "role": Role.train, "version": V0, "update": 0, "is_core": True}


def applied(every: int, *, is_last: bool = False, **order: object) -> CellDriver:
    """The core, right after the optimizer step of update 0."""
    cell = CellDriver(CellSettings(name="cell-0", incarnation=1, checkpoint_before_publish=False, checkpoint_every=every))
    cell.order(**TRAIN, leases=leases("0:0"))
    cell.settle()
    cell.order(**TRAIN, commit=CommitOrder(1, TWO))
    cell.finish(HostGroup)
    cell.order(**TRAIN, commit=CommitOrder(1, TWO, "127.0.0.1:1", "", True))
    cell.finish(Reduce)
    cell.order(**TRAIN, commit=CommitOrder(1, TWO, "127.0.0.1:1", "", True), apply=msgspec.structs.replace(APPLY, is_last=is_last), **order)
    cell.finish(Apply)
    return cell


def test_a_core_told_so_saves_what_was_passed_over_and_says_when_it_is_done() -> None:
    cell = applied(every=3)
    cell.settle()
    assert cell.report.applied is not None and "save_checkpoint" not in cell.ran and cell.report.saved == V0
    cell.order(**(TRAIN | {"version": V1, "update": 1}), save=True)
    save = cell.running[cell.key_of(SaveCheckpoint)]
    assert isinstance(save, SaveCheckpoint) and save.version == V1 and save.state["consumed"] == CONSUMED.plain()
    cell.finish(SaveCheckpoint)
    assert cell.report.saved == V1
    record = cell.running[cell.key_of(AppliedRecord)]
    assert isinstance(record, AppliedRecord) and record.checkpoint == str(V1) and record.applied.version == V1
    cell.settle()
    assert cell.ran.count("save_checkpoint") == 1, "once"


def test_a_core_told_so_before_its_step_saves_that_version_like_a_regular_one() -> None:
    cell = applied(every=3, save=True)
    cell.settle()
    assert cell.ran.count("save_checkpoint") == 1 and cell.report.saved == V1


def test_the_last_update_of_a_run_is_saved_before_it_is_reported() -> None:
    cell = applied(every=3, is_last=True)
    assert cell.is_running(SaveCheckpoint) and cell.report.applied is None
    cell.settle()
    assert cell.report.applied is not None and cell.report.saved == V1


def answers(effects: list[Effect]) -> list[SaveAnswer]:
    return [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, SaveAnswer)]


def test_the_controller_orders_the_save_and_answers_until_it_is_made() -> None:
    made, _ = machine(*HISTORY, checkpoint_before_publish=False)
    state = made.state
    state.looked_for_checkpoint = True
    core = {"snapshots": (FIRST, SECOND), "version": SECOND}
    state.version = SECOND
    tell(made, 1.0, report("cell-0", 1, **core, saved=FIRST, save_s=2.0), "cell-0")
    (answer,) = answers(tell(made, 2.0, SaveNow("SIGUSR2"), "supervisor-0"))
    assert answer.waits_s == 11.0 and str(SECOND) in answer.reason
    assert {"owner": "cell-0", "reason": f"before the run is stopped: {answer.reason}", "left_s": 10.0} in waits_of(state, 3.0)
    sent = made.handle(3.5, TimerFired("tick"))
    orders = [e.message for e in sent if isinstance(e, Send) and isinstance(e.message, Order)]
    assert orders and all(order.save == (order.is_core) for order in orders)
    (over,) = answers(tell(made, 3.0, report("cell-0", 3, **core, saved=SECOND, save_s=2.5), "cell-0"))
    assert over == SaveAnswer(0.0, f"{SECOND} is saved")
    assert not answers(tell(made, 3.1, report("cell-0", 4, **core, saved=SECOND, save_s=2.5, error="x"), "cell-0")), "said once"
    assert answers(tell(made, 4.0, SaveNow("SIGUSR2"), "supervisor-0")) == [over], "but always to who asks again"


def test_nothing_is_waited_for_where_nothing_can_be_saved() -> None:
    made, _ = machine(*HISTORY)
    (answer,) = answers(tell(made, 2.0, SaveNow("SIGTERM"), "supervisor-0"))
    assert answer == SaveAnswer(0.0, "cell-0 cannot save")
