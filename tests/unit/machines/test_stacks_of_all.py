"""When something of several parties is late, all of them write their stacks before the deadline ends it; nobody is ended for it."""

from gyre_hpc.machines.base import Effect, Received, Send
from gyre_hpc.machines.batch import BatchMachine
from gyre_hpc.machines.batch.commit import Commit
from gyre_hpc.machines.batch.late import LATE, watch_late
from gyre_hpc.machines.supervision import DumpStacks, KillProcess, TerminateProcess
from gyre_hpc.protocol.supervision import WriteStacks
from gyre_hpc.protocol.to_batch import CellState
from gyre_hpc.protocol.to_cell import KvOrder, KvTarget
from tests.fakes.batch_bench import CELLS, report, tell, tick, training
from tests.unit.machines.test_supervision import SETTINGS, actions, live_bench, stacks_of


def orders(effects: list[Effect]) -> list[WriteStacks]:
    return [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, WriteStacks)]


def in_commit() -> BatchMachine:
    made = training()
    made.state.commit = Commit(generation=1, members=CELLS, nonce="n", started_at=10.0)
    tell(made, 10.0, report("cell-0", 50, state=CellState.train, waiting="reduce (deadline 30 s)"), "cell-0")
    return made


def test_members_of_a_commit_are_asked_shortly_before_it_is_given_up() -> None:
    made = in_commit()
    deadline_s = made.state.settings.commit_deadline_s
    assert not watch_late(made.state, 10.0 + LATE * deadline_s - 0.1)
    (order,) = orders(watch_late(made.state, 10.0 + LATE * deadline_s + 0.1))
    assert order.processes == CELLS
    assert order.reason == "update 0 is not reduced after 24 s; cell-0 waits for reduce (deadline 30 s)"


def test_the_order_is_repeated_but_not_with_every_tick() -> None:
    made = in_commit()
    late = 10.0 + LATE * made.state.settings.commit_deadline_s
    times = [late + 0.1 + 0.1 * step for step in range(25)]
    assert sum(len(watch_late(made.state, now)) for now in times) == 3


def test_in_a_role_change_the_core_and_those_who_take_kv_are_asked_too() -> None:
    made = in_commit()
    made.state.commit = None
    cell = made.state.fleet.cells["cell-1"]
    tell(made, 10.0, report("cell-1", 50, state=CellState.train, waiting="move_kv (deadline 8 s)"), "cell-1")
    cell.kv = KvOrder(targets=(KvTarget("cell-2", 100),), live=(), budget_s=2.0)
    cell.moving_since = 10.0
    (order,) = orders(watch_late(made.state, 10.0 + LATE * made.state.settings.switch_deadline_s + 0.1))
    assert order.processes == ("cell-1", "cell-0", "cell-2") and "move_kv" in order.reason and "role change of cell-1" in order.reason


def test_a_micro_batch_that_never_ends_asks_its_cell_and_who_gave_it() -> None:
    made = in_commit()
    made.state.commit = None
    made.state.fleet.cells["cell-2"].working_since = 10.0
    (order,) = orders(watch_late(made.state, 10.0 + made.state.settings.lease_deadline_s))
    assert order.processes == ("cell-2", "controller")


def test_weights_that_do_not_arrive_ask_the_cell_and_the_core() -> None:
    made = in_commit()
    made.state.commit = None
    made.state.fleet.cells["cell-2"].stale_since = 10.0
    assert not watch_late(made.state, 10.0 + 0.9 * made.state.settings.stale_patience_s)
    (order,) = orders(watch_late(made.state, 10.0 + 1.1 * made.state.settings.stale_patience_s))
    assert order.processes == ("cell-2", "cell-0")


def test_a_tick_asks() -> None:
    made = in_commit()
    assert orders(tick(made, 10.0 + made.state.settings.commit_deadline_s - 1.0))


def test_each_process_writes_once_a_minute_and_nobody_is_ended() -> None:
    bench = live_bench()
    order = WriteStacks(("cell-0", "cell-1", "cell-9"), "update 0 is not reduced")
    effects = bench.from_controller(order)
    assert stacks_of(effects)[0] == [DumpStacks("cell-0", 1), DumpStacks("cell-1", 1)]
    assert {note["reason"] for note in stacks_of(effects)[1]} == {"update 0 is not reduced"}
    bench.now = SETTINGS.stacks_again_s - 1.0
    again = bench.from_controller(order)
    assert stacks_of(again) == ([], [])
    bench.now = SETTINGS.stacks_again_s
    assert len(stacks_of(bench.from_controller(order))[1]) == 2
    assert not actions(bench.effects, TerminateProcess) and not actions(bench.effects, KillProcess)


def test_only_the_controller_may_have_them_written() -> None:
    bench = live_bench()
    assert not stacks_of(bench.tell(Received("cell-1", WriteStacks(("cell-0",), "x"))))[0]
