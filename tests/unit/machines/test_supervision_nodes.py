"""Supervision over several nodes, told facts by hand."""

from dataclasses import replace

from gyre_hpc.machines.base import Effect, Finished, Input, Note, Received, Restarted, Send, Start, TimerFired
from gyre_hpc.machines.supervision import (
    NODE_LOST,
    DumpStacks,
    MirrorDirectory,
    SpawnProcess,
    SupervisionMachine,
    SupervisionSettings,
    TerminateProcess,
)
from gyre_hpc.protocol.supervision import (
    ChildEnd,
    ChildOrder,
    Directory,
    Entry,
    FinishRun,
    NodeOffer,
    NodeOrders,
    NodeReport,
    Register,
    RendezvousOpen,
    RestartCell,
    Wanted,
)

HOME, ONE, TWO = "supervisor-0", "supervisor-1", "supervisor-2"
SETTINGS = SupervisionSettings(
    publish_s=0.0,
    services=("controller", "runner-0", "runner-1"),
    cells=("cell-0", "cell-1", "cell-2"),
    places={"runner-1": (ONE,), "cell-1": (ONE,), "cell-2": (ONE, TWO)},
    hosts={ONE: "host-1", TWO: "host-2"},
    node_silence_ticks=5,
)


class Bench:
    """Feeds one machine; remembers the newest orders of each node and the newest directory."""

    def __init__(self, settings: SupervisionSettings = SETTINGS) -> None:
        self.machine, self.now = SupervisionMachine(settings), 0.0
        self.effects: list[Effect] = []
        self.orders: dict[str, NodeOrders] = {}
        self.directory = Directory(-1)
        self.numbers: dict[str, int] = {}
        self.tell(Restarted())

    def tell(self, told: Input) -> list[Effect]:
        effects = self.machine.handle(self.now, told)
        self.effects += effects
        for effect in effects:
            match effect:
                case Send(to=to, message=NodeOrders() as orders):
                    assert orders.number > (self.orders[to].number if to in self.orders else -1)
                    assert any(entry.process == to and entry.url for entry in self.directory.entries), "our mail would not find it"
                    self.orders[to] = orders
                case Send(message=Directory() as directory) if directory.number > self.directory.number:
                    self.directory = directory
        if actions(effects, MirrorDirectory):
            effects = effects + self.tell(Finished("mirror"))
        return effects

    def report(
        self,
        node: str,
        *ended: ChildEnd,
        life: str = "a",
        cells: int = 0,
        number: int | None = None,
        seen: int = -1,
        leaving: str = "",
        kind: str = "",
    ) -> list[Effect]:
        self.numbers[node] = self.numbers.get(node, 0) + 1
        offer = NodeOffer(f"host-{node[-1]}", "10.0.0.1", kind=kind, cells=cells)
        number = self.numbers[node] if number is None else number
        return self.tell(Received(node, NodeReport(node, life, number, seen, f"http://{node}/{life}", offer, (), ended, leaving)))

    def register(self, *names: str, incarnation: int = 1) -> None:
        for name in names:
            self.tell(Received(name, Register(name, incarnation, f"http://{name}", 7)))

    def wish(self, node: str, process: str) -> Wanted | None:
        return next((order.wanted for order in self.orders[node].children if order.process == process), None)

    def entry(self, name: str) -> Entry:
        return next(entry for entry in self.directory.entries if entry.process == name)

    def ticks(self, number: int, *speaking: str) -> list[Effect]:
        effects: list[Effect] = []
        for _ in range(number):
            for node in speaking:
                effects += self.report(node)
            effects += self.tell(TimerFired("tick"))
        return effects


def actions(effects: list[Effect], kind: type) -> list:
    return [e.action for e in effects if isinstance(e, Start) and isinstance(e.action, kind)]


def notes(effects: list[Effect], kind: str) -> list[dict]:
    return [e.fields for e in effects if isinstance(e, Note) and e.kind == kind]


def live() -> Bench:
    bench = Bench()
    bench.report(ONE)
    bench.report(TWO)
    bench.tell(Received("x", RendezvousOpen("cell-2", 1, "10.0.0.1:7")))
    bench.register("controller", "runner-0", "runner-1", "cell-0", "cell-1", "cell-2")
    return bench


def test_every_part_of_a_cell_that_missed_a_deadline_is_asked_for_its_stacks():
    bench = live()
    effects = bench.tell(Received("controller", RestartCell("cell-2", 1, "silent")))
    assert [fields["process"] for fields in notes(effects, "stacks_asked")] == ["cell-2"] and not actions(effects, DumpStacks)
    for node in (ONE, TWO):
        assert {order.process: order.stacks for order in bench.orders[node].children}["cell-2"]
        assert not any(order.stacks for order in bench.orders[node].children if order.process != "cell-2")


def test_children_here_are_started_and_those_elsewhere_ordered_once_their_nodes_are_there():
    bench = Bench()
    assert {a.process for a in actions(bench.effects, SpawnProcess)} == {"controller", "runner-0", "cell-0"}
    bench.report(ONE)
    assert {order.process for order in bench.orders[ONE].children} == {"runner-1", "cell-1"}
    bench.report(TWO)
    assert ChildOrder("cell-2", 1) in bench.orders[ONE].children and not bench.orders[TWO].children
    assert bench.entry(ONE).url == f"http://{ONE}/a"


def test_the_other_parts_of_a_cell_come_once_the_first_one_listens():
    bench = Bench()
    bench.report(ONE)
    bench.report(TWO)
    bench.tell(Received("x", RendezvousOpen("cell-2", 0, "old:1")))
    assert not bench.orders[TWO].children
    bench.tell(Received("x", RendezvousOpen("cell-2", 1, "10.0.0.1:7")))
    assert bench.orders[TWO].children == (ChildOrder("cell-2", 1, Wanted.run, 1, "10.0.0.1:7"),)
    bench.tell(Received("x", RendezvousOpen("cell-2", 1, "10.0.0.1:8")))
    assert bench.orders[TWO].children[0].rendezvous == "10.0.0.1:7"


def test_the_end_of_one_part_ends_the_others_and_the_cell_is_lost_when_all_are_gone():
    bench = live()
    bench.report(TWO, ChildEnd("cell-2", 1, -11))
    assert bench.wish(ONE, "cell-2") is Wanted.terminate and bench.wish(TWO, "cell-2") is None
    bench.tell(Received("controller", RestartCell("cell-2", 1, "x")))
    assert bench.wish(ONE, "cell-2") is Wanted.terminate, "the next one waits for the last part"
    bench.tell(TimerFired("grace/cell-2/1"))
    assert bench.wish(ONE, "cell-2") is Wanted.kill
    effects = bench.report(ONE, ChildEnd("cell-2", 1, -9))
    assert notes(effects, "process_ended")[0]["code"] == -11, "the first end is the reason"
    assert bench.orders[ONE].children[-1] == ChildOrder("cell-2", 2)


def test_a_part_on_this_node_is_one_of_the_parts():
    bench = Bench(SupervisionSettings(services=("controller",), cells=("cell-0",), places={"cell-0": (HOME, ONE)}, hosts={ONE: "h"}))
    assert not [a for a in actions(bench.effects, SpawnProcess) if a.process == "cell-0"], "all its nodes first"
    assert SpawnProcess("cell-0", 1) in actions(bench.report(ONE), SpawnProcess)
    bench.tell(Received("x", RendezvousOpen("cell-0", 1, "h:7")))
    bench.report(ONE, ChildEnd("cell-0", 1, 1))
    assert actions(bench.effects, TerminateProcess) == [TerminateProcess("cell-0", 1)]
    assert notes(bench.tell(Finished("child/cell-0/1", -15)), "process_ended")[0]["reason"] == "exit code 1"


def test_an_end_that_is_told_twice_counts_once():
    bench = live()
    bench.report(ONE, ChildEnd("runner-1", 1, 1))
    assert not notes(bench.report(ONE, ChildEnd("runner-1", 1, 1)), "process_ended")
    bench.tell(TimerFired("backoff/runner-1/1"))
    assert ChildOrder("runner-1", 2) in bench.orders[ONE].children
    assert not notes(bench.report(ONE, ChildEnd("runner-1", 1, 1)), "process_ended")


def test_a_report_that_was_overtaken_changes_nothing():
    bench = live()
    assert not bench.report(ONE, ChildEnd("runner-1", 1, 1), number=0)


def test_another_life_of_a_node_has_none_of_the_children_of_the_one_before():
    bench = live()
    effects = bench.report(ONE, life="b", number=1)
    assert {fields["process"] for fields in notes(effects, "process_ended")} == {"runner-1", "cell-1"}
    assert "was started again" in bench.entry("cell-1").lost and bench.wish(ONE, "cell-1") is None
    assert bench.wish(TWO, "cell-2") is Wanted.terminate and bench.orders[ONE].life == "b"
    assert not bench.report(ONE, ChildEnd("runner-1", 2, 1), life="a", number=99), "the life before has nothing to say any more"
    bench.tell(TimerFired("backoff/runner-1/1"))
    assert ChildOrder("runner-1", 2) in bench.orders[ONE].children


def test_a_silent_node_is_given_up_with_its_cells_and_its_runner():
    bench = live()
    effects = bench.ticks(6, TWO)
    assert notes(effects, "node_lost") == [{"node": ONE, "host": "host-1", "reason": "no report for 6 ticks of 2 s"}]
    for name in ("runner-1", "cell-1"):
        assert bench.entry(name).aside and "host-1" in bench.entry(name).lost
    assert bench.wish(TWO, "cell-2") is Wanted.terminate, "what is left of a cell over it goes too"
    bench.report(TWO, ChildEnd("cell-2", 1, 0))
    assert bench.entry("cell-2").aside and "host-1" in bench.entry("cell-2").lost
    assert not notes(bench.effects, "run_finishing")
    number = bench.orders[ONE].number
    bench.report(ONE, ChildEnd("runner-1", 1, 1))
    assert bench.orders[ONE].number > number and bench.orders[ONE].is_over and not bench.orders[ONE].children
    bench.tell(Received("controller", RestartCell("cell-1", 1, "x")))
    assert not bench.orders[ONE].children


def test_a_node_of_the_core_that_is_given_up_ends_the_attempt():
    bench = Bench(SupervisionSettings(services=("controller",), cells=("cell-0",), places={"cell-0": (HOME, ONE)}, hosts={ONE: "h"}))
    effects = bench.tell(TimerFired(f"arrival/{ONE}"))
    (finishing,) = notes(effects, "run_finishing")
    assert finishing["exit_code"] == NODE_LOST and "did not report within" in finishing["reason"]


def test_a_node_that_never_comes_is_given_up_and_one_that_came_is_not():
    bench = Bench()
    bench.report(ONE)
    assert not notes(bench.tell(TimerFired(f"arrival/{ONE}")), "node_lost")
    assert notes(bench.tell(TimerFired(f"arrival/{TWO}")), "node_lost")
    assert bench.entry("cell-2").aside and not bench.entry("cell-1").aside


def test_services_on_a_silent_node_are_not_blamed_for_it():
    bench = live()
    for _ in range(4):
        bench.register("controller", "runner-0")
        bench.ticks(4, TWO)
        bench.register("runner-1")
        bench.report(ONE)
    assert bench.wish(ONE, "runner-1") is Wanted.run


def test_an_unplanned_node_brings_cells_with_new_numbers():
    bench = live()
    effects = bench.report("supervisor-j7n0", cells=2)
    assert notes(effects, "node_joined")[0]["cells"] == ["cell-3", "cell-4"]
    assert bench.orders["supervisor-j7n0"].children == (ChildOrder("cell-3", 1), ChildOrder("cell-4", 1))
    assert notes(bench.ticks(6, ONE, TWO), "node_left")
    assert bench.entry("cell-3").aside and bench.entry("cell-4").aside
    assert notes(bench.report("supervisor-j7n0", cells=2, life="b"), "node_joined")[0]["cells"] == ["cell-5", "cell-6"]
    assert bench.orders["supervisor-j7n0"].life == "b" and not bench.orders["supervisor-j7n0"].is_over


def test_a_satellite_that_leaves_is_given_up_at_once():
    bench = live()
    bench.report("supervisor-j7n0", cells=1)
    effects = bench.report("supervisor-j7n0", ChildEnd("cell-3", 1, 0), cells=1, leaving="SIGTERM")
    assert notes(effects, "node_left") and bench.entry("cell-3").aside


def test_who_has_no_part_in_the_run_is_dismissed():
    for bench, cells in ((live(), 0), (Bench(SupervisionSettings(takes_joiners=False)), 1)):
        bench.register("controller")
        bench.report("supervisor-j7n0", cells=cells)
        assert bench.orders["supervisor-j7n0"].is_over and not bench.orders["supervisor-j7n0"].children
    bench = live()
    bench.tell(Received("controller", FinishRun(0, "done")))
    bench.report("supervisor-j7n0", cells=1)
    assert bench.orders["supervisor-j7n0"].is_over


def test_a_node_with_another_kind_of_gpu_is_refused_with_the_reason():
    bench = Bench(replace(SETTINGS, kind="H100"))
    for number, kind in enumerate(("", "A100")):
        joiner = f"supervisor-j{number}n0"
        assert "one kind" in notes(bench.report(joiner, cells=1, kind=kind), "node_refused")[0]["reason"]
        assert bench.orders[joiner].is_over and "H100" in bench.orders[joiner].refused
        bench.report(joiner, cells=1, kind=kind)
        assert "H100" in bench.orders[joiner].refused, "said again as long as it asks"
    assert notes(bench.report("supervisor-j2n0", cells=1, kind="H100"), "node_joined")


def test_joiners_that_come_and_go_without_end_leave_no_list_that_grows():
    bench = live()
    begun = len(bench.directory.entries)
    for number in range(40):
        joiner = f"supervisor-j{number}n0"
        names = notes(bench.report(joiner, cells=1), "node_joined")[0]["cells"]
        assert names == [f"cell-{3 + number}"], "numbers are not used again"
        bench.register(*names)
        bench.report(joiner, ChildEnd(names[0], 1, -9), cells=1, leaving="SIGTERM")
        bench.ticks(1, ONE, TWO)
        assert bench.entry(names[0]).aside, "the controller learns of it"
    assert len(bench.directory.entries) <= begun + 16
    del bench.orders["supervisor-j0n0"]  # those of another life are numbered anew
    assert notes(bench.report("supervisor-j0n0", cells=1, life="b"), "node_joined"), "one that is forgotten may come again"
