"""Supervision and node machines against each other, over a network that loses, doubles and overtakes, with nodes that come and go."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gyre_hpc.machines.supervision import SupervisionSettings
from tests.fakes.node_world import HOME, NodeWorld

PLANNED, JOINERS = ("supervisor-1", "supervisor-2"), ("supervisor-j7n0", "supervisor-j7n1")
SETTINGS = SupervisionSettings(
    services=("controller", "runner-0", "runner-1", "runner-2"),
    cells=("cell-0", "cell-1", "cell-2", "cell-3"),
    places={
        "runner-1": PLANNED[:1], "runner-2": PLANNED[1:], "cell-1": PLANNED[:1], "cell-2": PLANNED, "cell-3": (HOME, PLANNED[1]),
    },
    hosts={name: name for name in PLANNED},
    crash_limit=1000,
)  # fmt: skip
NODES = st.sampled_from((*PLANNED, *JOINERS))


class Nodes(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = NodeWorld(SETTINGS)
        self.is_finished = False

    @initialize(absent=st.sampled_from((*PLANNED, "", "", "")), calm=st.booleans())
    def begin(self, absent: str, calm: bool) -> None:
        for name in PLANNED:
            if name != absent:
                self.world.start_node(name)
        if calm:
            self.all_goes_well()

    @rule(name=NODES)
    def a_node_comes(self, name: str) -> None:
        node = self.world.supervisors.get(name)
        if node is None or not node.alive or node.ended is not None:
            self.world.start_node(name, cells=2 if name in JOINERS else 0)

    @rule(name=st.sampled_from(PLANNED))
    def a_supervisor_is_started_again(self, name: str) -> None:
        if name in self.world.supervisors:
            self.world.kill_node(name)
        self.world.start_node(name)

    @rule(name=NODES)
    def a_node_loses_its_power(self, name: str) -> None:
        if name in self.world.supervisors:
            self.world.kill_node(name)

    @rule(name=NODES, mended=st.booleans())
    def a_node_is_cut_off_or_mended(self, name: str, mended: bool) -> None:
        (self.world.cut.discard if mended else self.world.cut.add)(name)

    @precondition(lambda self: self.world.mail)
    @rule(data=st.data(), keep=st.booleans())
    def a_message_arrives(self, data: st.DataObject, keep: bool) -> None:
        self.world.deliver(data.draw(st.integers(0, len(self.world.mail) - 1)), keep=keep)

    @precondition(lambda self: self.world.mail)
    @rule(data=st.data())
    def a_message_is_lost(self, data: st.DataObject) -> None:
        del self.world.mail[data.draw(st.integers(0, len(self.world.mail) - 1))]

    @rule(steps=st.sampled_from((1, 1, 3, 12, 40)), quiet=st.booleans())
    def time_goes_on(self, steps: int, quiet: bool) -> None:
        """Quiet: no message arrives meanwhile."""
        for _ in range(steps):
            self.world.advance()
            while self.world.mail and not quiet:
                self.world.deliver(0)

    @rule()
    def all_goes_well(self) -> None:
        """For a while."""
        for _ in range(4):
            self.world.advance()
            while self.world.mail:
                self.world.deliver(0)
            self.world.register_all()

    @rule()
    def everybody_registers(self) -> None:
        self.world.register_all()

    @precondition(lambda self: self.world.living())
    @rule(data=st.data(), code=st.sampled_from((0, 1, -9, -15)))
    def a_process_ends(self, data: st.DataObject, code: int) -> None:
        node, process, incarnation = data.draw(st.sampled_from(self.world.living()))
        self.world.exit(self.world.supervisors[node], process, incarnation, code)

    @rule(cell=st.sampled_from(SETTINGS.cells), incarnation=st.integers(1, 2))
    def a_cell_is_ordered_again(self, cell: str, incarnation: int) -> None:
        self.world.restart_cell(cell, incarnation)

    @rule()
    def what_is_lost_is_ordered_again(self) -> None:
        for cell in SETTINGS.cells:
            incarnation = max((number for process, number, _ in self.world.started if process == cell), default=0)
            self.world.restart_cell(cell, incarnation)

    @rule()
    def the_run_ends(self) -> None:
        self.is_finished = True
        self.world.finish()

    @invariant()
    def one_incarnation_of_a_child_is_alive(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        """Whatever happened: once the run is finished everything is gone, everywhere, and every supervisor has ended."""
        world = self.world
        world.finish()
        for _ in range(150):
            world.advance()
            while world.mail:
                world.deliver(0)
        assert world.home.ended is not None, "supervision did not end"
        assert not world.living(), "a process outlived the run"
        for node in world.supervisors.values():
            assert node.ended is not None or not node.alive, f"{node.name} did not end"


Nodes.TestCase.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
test_nodes = Nodes.TestCase
