"""The end of a run over several nodes."""

from gyre_hpc.machines.base import Finished, Received, TimerFired
from gyre_hpc.machines.supervision import EndRun, SupervisionSettings
from gyre_hpc.protocol.supervision import ChildEnd, FinishRun, Wanted
from tests.unit.machines.test_supervision_nodes import HOME, ONE, TWO, Bench, actions, live


def test_the_end_waits_for_children_everywhere_and_for_nodes_to_know():
    bench = live()
    bench.tell(Received("controller", FinishRun(0, "done")))
    assert not bench.orders[ONE].is_over, "the controller ends first"
    bench.tell(Finished("child/controller/1", 0))
    assert bench.orders[ONE].is_over and {order.wanted for order in bench.orders[ONE].children} == {Wanted.terminate}
    for name in ("runner-0", "cell-0"):
        bench.tell(Finished(f"child/{name}/1", 0))
    bench.report(TWO, ChildEnd("cell-2", 1, 0))
    bench.report(ONE, ChildEnd("cell-2", 1, 0), ChildEnd("cell-1", 1, 0), ChildEnd("runner-1", 1, 0))
    assert not actions(bench.effects, EndRun)
    bench.report(ONE, seen=bench.orders[ONE].number)
    assert actions(bench.report(TWO, seen=bench.orders[TWO].number), EndRun) == [EndRun(0, "done")]


def test_the_end_does_not_wait_for_ever_for_a_node_to_know():
    bench = Bench(SupervisionSettings(services=("controller",), hosts={ONE: "h"}))
    bench.report(ONE)
    bench.tell(Received(HOME, FinishRun(130, "SIGINT")))
    assert not actions(bench.tell(Finished("child/controller/1", 0)), EndRun)
    assert actions(bench.tell(TimerFired("farewell")), EndRun)


def test_the_end_waits_for_a_silent_node_until_it_is_given_up():
    bench = live()
    bench.tell(Received(HOME, FinishRun(0, "done")))
    for name in ("controller", "runner-0", "cell-0"):
        bench.tell(Finished(f"child/{name}/1", 0))
    bench.report(TWO, ChildEnd("cell-2", 1, 0))
    bench.ticks(3, TWO)
    bench.tell(TimerFired("grace/runner-1/1"))
    bench.tell(TimerFired("gone/runner-1/1"))
    assert not actions(bench.effects, EndRun)
    bench.ticks(3, TWO)
    bench.report(TWO, seen=bench.orders[TWO].number)
    assert actions(bench.effects, EndRun)[0].exit_code == 0
