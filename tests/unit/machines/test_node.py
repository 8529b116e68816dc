"""The node machine, told facts by hand."""

from msgspec.structs import replace

from gyre_hpc.machines.base import Effect, Failed, Finished, Input, Received, Restarted, Send, SetTimer, Start, TimerFired
from gyre_hpc.machines.node import NodeMachine, NodeSettings
from gyre_hpc.machines.supervision import NODE_LOST, DumpStacks, EndRun, KillProcess, SpawnProcess, TerminateProcess
from gyre_hpc.protocol.supervision import ChildEnd, ChildOrder, FinishRun, NodeOffer, NodeOrders, NodeReport, Wanted

LIFE = "first"


class Bench:
    """Feeds one machine and remembers what it says."""

    def __init__(self, cells: int = 0) -> None:
        offer = NodeOffer("host-2", "10.0.0.2", cells=cells)
        settings = NodeSettings(name="supervisor-2", life=LIFE, url="http://10.0.0.2:1", offer=offer)
        self.machine, self.now, self.report = NodeMachine(settings), 0.0, NodeReport("", "", -1, -1, "", offer)
        self.tell(Restarted())

    def tell(self, told: Input) -> list[Effect]:
        effects = self.machine.handle(self.now, told)
        for effect in effects:
            if isinstance(effect, Send):
                assert isinstance(effect.message, NodeReport) and effect.to == "supervisor-0"
                assert effect.message.number > self.report.number
                self.report = effect.message
        return effects

    def order(self, number: int, *children: ChildOrder, is_over: bool = False, life: str = LIFE, refused: str = "") -> list[Effect]:
        return self.tell(Received("supervisor-0", NodeOrders(number, children, is_over, life, refused)))

    def at(self, now: float, told: Input) -> list[Effect]:
        self.now = now
        return self.tell(told)


def actions(effects: list[Effect], kind: type) -> list:
    return [e.action for e in effects if isinstance(e, Start) and isinstance(e.action, kind)]


RUNNER, CELL = ChildOrder("runner-2", 1), ChildOrder("cell-4", 3, Wanted.run, 1, "10.0.0.1:77")


def wanted(order: ChildOrder, wish: Wanted) -> ChildOrder:
    return ChildOrder(order.process, order.incarnation, wish, order.part, order.rendezvous)


def test_what_is_ordered_is_started_once_with_its_part_and_rendezvous():
    bench = Bench()
    effects = bench.order(1, RUNNER, CELL)
    assert actions(effects, SpawnProcess) == [SpawnProcess("runner-2", 1), SpawnProcess("cell-4", 3, 1, "10.0.0.1:77")]
    assert bench.report.running == (("runner-2", 1), ("cell-4", 3)) and bench.report.seen == 1
    assert not actions(bench.order(2, RUNNER, CELL), SpawnProcess)


def test_older_orders_those_of_another_life_and_those_of_strangers_change_nothing():
    bench = Bench()
    bench.order(5, RUNNER)
    bench.now = 15.0
    assert not actions(bench.order(4, RUNNER, CELL), SpawnProcess)
    assert not actions(bench.order(9, RUNNER, CELL, life="second"), SpawnProcess)
    assert not actions(bench.tell(Received("controller", NodeOrders(9, (CELL,), False, LIFE))), SpawnProcess)
    assert actions(bench.at(21.0, TimerFired("report")), KillProcess), "none of them was a sign of life"


def test_what_is_wanted_gone_is_asked_once_and_killed_until_it_is_gone():
    bench = Bench()
    bench.order(1, RUNNER)
    assert actions(bench.order(2, wanted(RUNNER, Wanted.terminate)), TerminateProcess) == [TerminateProcess("runner-2", 1)]
    assert not actions(bench.order(3, wanted(RUNNER, Wanted.terminate)), TerminateProcess)
    assert actions(bench.order(4, wanted(RUNNER, Wanted.kill)), KillProcess) == [KillProcess("runner-2", 1)]
    assert not actions(bench.tell(TimerFired("report")), KillProcess), "a kill is under way"
    bench.tell(Failed("kill/runner-2/1", "OSError", "x"))
    assert actions(bench.tell(TimerFired("report")), KillProcess), "one that failed is tried again"


def test_stacks_are_asked_for_once_and_before_the_end():
    bench = Bench()
    bench.order(1, RUNNER, CELL)
    hung = replace(wanted(CELL, Wanted.terminate), stacks=True)
    effects = bench.order(2, RUNNER, hung)
    assert [e.action for e in effects if isinstance(e, Start)] == [DumpStacks("cell-4", 3)]
    assert actions(bench.tell(Finished("stacks/cell-4/3", ())), TerminateProcess) == [TerminateProcess("cell-4", 3)]
    assert not actions(bench.order(3, RUNNER, hung), DumpStacks)


def test_what_was_wanted_gone_before_it_was_started_is_never_started():
    bench = Bench()
    assert not actions(bench.order(2, wanted(CELL, Wanted.terminate)), SpawnProcess)
    assert [end.process for end in bench.report.ended] == ["cell-4"]
    assert not actions(bench.order(3, CELL), SpawnProcess)


def test_an_end_is_told_until_the_orders_name_the_child_no_more():
    bench = Bench()
    bench.order(1, RUNNER)
    bench.tell(Finished("child/runner-2/1", -9))
    bench.tell(TimerFired("report"))
    assert bench.report.ended == (ChildEnd("runner-2", 1, -9),) and not bench.report.running
    bench.order(2, ChildOrder("runner-2", 2))
    assert not bench.report.ended and bench.report.running == (("runner-2", 2),)


def test_a_child_that_could_not_be_started_ended():
    bench = Bench()
    bench.order(1, RUNNER)
    bench.tell(Failed("child/runner-2/1", "OSError", "no memory"))
    assert bench.report.ended == (ChildEnd("runner-2", 1, 1, "could not be started: no memory"),)


def test_what_the_orders_do_not_name_is_killed():
    bench = Bench()
    bench.order(1, RUNNER, CELL)
    assert actions(bench.order(2, RUNNER), KillProcess) == [KillProcess("cell-4", 3)]


def test_silence_kills_every_child_and_ends_the_process():
    bench = Bench()
    bench.order(1, RUNNER, CELL)
    assert not actions(bench.at(20.0, TimerFired("report")), KillProcess)
    effects = bench.at(20.1, TimerFired("report"))
    assert len(actions(effects, KillProcess)) == 2
    assert not actions(bench.order(2, RUNNER, CELL, ChildOrder("cell-5", 1)), SpawnProcess), "it does not come back"
    bench.tell(Finished("child/runner-2/1", -9))
    (end,) = actions(bench.tell(Finished("child/cell-4/3", -9)), EndRun)
    assert end.exit_code == NODE_LOST and "no orders of supervisor-0" in end.reason
    assert not bench.order(3, RUNNER)


def test_orders_that_waited_while_the_process_stood_still_are_no_sign_of_life():
    bench = Bench()
    bench.order(1, RUNNER)
    bench.now = 60.0
    effects = bench.order(2, RUNNER, CELL)
    assert actions(effects, KillProcess) == [KillProcess("runner-2", 1)] and not actions(effects, SpawnProcess)


def test_an_unkillable_child_does_not_keep_a_fenced_node():
    bench = Bench()
    bench.order(1, RUNNER)
    assert ("gone", 10.0) in [(e.key, e.after_s) for e in bench.at(21.0, TimerFired("report")) if isinstance(e, SetTimer)]
    assert actions(bench.tell(TimerFired("gone")), EndRun)[0].exit_code == NODE_LOST


def test_the_end_of_the_run_waits_for_the_children_and_for_their_ends_to_be_heard():
    bench = Bench()
    bench.order(1, RUNNER)
    bench.order(2, wanted(RUNNER, Wanted.terminate), is_over=True)
    assert "leave" not in [e.key for e in bench.tell(Finished("child/runner-2/1", 0)) if isinstance(e, SetTimer)]
    effects = bench.order(3, is_over=True)
    assert "leave" in [e.key for e in effects if isinstance(e, SetTimer)] and bench.report.seen == 3
    assert actions(bench.tell(TimerFired("leave")), EndRun)[0].exit_code == 0


def test_a_node_that_knows_that_the_run_is_over_ends_well_in_silence():
    bench = Bench()
    bench.order(1, RUNNER)
    bench.order(2, wanted(RUNNER, Wanted.terminate), is_over=True)
    bench.tell(Finished("child/runner-2/1", 0))
    assert actions(bench.at(21.0, TimerFired("report")), EndRun)[0].exit_code == 0


def test_a_satellite_that_is_told_to_end_ends_its_children_and_says_that_it_leaves():
    bench = Bench(cells=2)
    bench.order(1, CELL)
    effects = bench.tell(Received("supervisor-2", FinishRun(130, "SIGTERM")))
    assert actions(effects, TerminateProcess) and not bench.report.leaving
    bench.tell(Finished("child/cell-4/3", -15))
    assert bench.report.leaving == "SIGTERM" and bench.report.ended
    assert actions(bench.tell(TimerFired("leave")), EndRun)[0].exit_code == 0


def test_a_planned_node_that_is_told_to_end_waits_for_supervisor_0():
    bench = Bench()
    bench.order(1, RUNNER)
    assert not bench.tell(Received("supervisor-2", FinishRun(130, "SIGTERM")))


def test_a_node_that_is_refused_ends_by_itself_with_the_reason():
    bench = Bench()
    bench.order(1, is_over=True, refused="a run takes one kind")
    end = actions(bench.tell(TimerFired("leave")), EndRun)
    assert end[0].exit_code == 2 and "a run takes one kind" in end[0].reason
