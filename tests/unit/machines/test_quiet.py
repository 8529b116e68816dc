"""What happens rarely is looked at rarely: heartbeats of cells and ticks of the controller, until something happens again."""

from gyre_hpc.machines.base import SetTimer, TimerFired
from gyre_hpc.machines.cell import CellSettings
from gyre_hpc.protocol.identity import Role
from tests.fakes.batch_bench import machine, report, tell
from tests.fakes.cell_driver import V0, CellDriver


def test_a_cell_to_which_nothing_happens_beats_less_and_less_often_and_soon_again_when_something_does():
    cell = CellDriver(CellSettings(name="cell-0", incarnation=1, heartbeat_s=0.5, quiet_heartbeat_s=3.0))
    cell.order(term=1, role=Role.rollout, version=V0, is_core=True)
    cell.settle(1)
    waits = []
    for _ in range(6):
        before = cell.now
        cell.beat()
        waits.append(cell.now - before)
    assert waits == sorted(waits) and 2.5 < waits[-1] <= 3.0
    cell.body.tokens = {"sampled": 5}
    cell.beat()
    assert cell.timers["heartbeat"] - cell.now <= 0.5
    for _ in range(5):
        cell.beat()
    assert cell.timers["heartbeat"] - cell.now > 2.0
    cell.order(term=1, role=Role.rollout, version=V0, is_core=True)
    assert cell.timers["heartbeat"] - cell.now <= 0.5, "it says that the order came, before that is sent again"
    for _ in range(5):
        cell.beat()
    cell.order(term=2, role=Role.train, version=V0, is_core=True)
    assert cell.timers["heartbeat"] - cell.now <= 0.5


def test_ticks_of_the_controller_come_later_while_they_bring_nothing_and_at_once_after_news():
    made, _ = machine()
    now, waits = 0.0, []
    for _ in range(8):
        now += 0.1
        (after_s,) = [e.after_s for e in made.handle(now, TimerFired("tick")) if isinstance(e, SetTimer) and e.key == "tick"]
        waits.append(after_s)
    assert (waits[0], waits[-1]) == (0.1, 1.0)
    effects = tell(made, now + 0.1, report("cell-0", 1), "cell-0")
    assert [e.after_s for e in effects if isinstance(e, SetTimer) and e.key == "tick"] == [0.1]
