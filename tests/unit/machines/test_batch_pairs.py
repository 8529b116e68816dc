"""Cells that serve two by two: who is in the routing table, who leaves and comes back when, and what the scheduler counts."""

from typing import Any

import pytest

from gyre_hpc.config.schema import SchedulerConfig
from gyre_hpc.machines.base import Effect, Note, Send, TimerFired
from gyre_hpc.machines.batch import BatchMachine
from gyre_hpc.machines.batch.facts import facts_of
from gyre_hpc.machines.batch.fleet import Move
from gyre_hpc.machines.batch.intake import activity_of
from gyre_hpc.machines.batch.moving import kv_order
from gyre_hpc.machines.batch.trial import Phase
from gyre_hpc.protocol.identity import Role, Version
from gyre_hpc.protocol.supervision import Directory, Entry
from gyre_hpc.protocol.to_batch import CellState, KvFacts
from gyre_hpc.protocol.to_cell import Order
from gyre_hpc.protocol.to_gateway import Table
from gyre_hpc.scheduler.base import Decision, Facts, Waterlevel
from tests.fakes.batch_bench import FIRST, HISTORY, acknowledge, machine, report, tell

NAMES = ("cell-0", "cell-1", "cell-2", "cell-3")
PAIRS = (("cell-0", "cell-1"), ("cell-2", "cell-3"))
NEWER = Version(0, 1)
LEVEL = Waterlevel(live=4, marginal=0.0, ready=1.0, cells_needed=0, theta=1.0)


class Bench:
    """Two pairs that serve, the gateway knows it."""

    def __init__(self, **changed: Any) -> None:
        self.made: BatchMachine = machine(*HISTORY, cells=NAMES, pairs=PAIRS, **changed)[0]
        self.made.state.phase = Phase.training
        self.now, self.seq = 0.1, 0
        tell(self.made, self.now, Directory(1, tuple(Entry(name, 1, name) for name in (*NAMES, "gateway-0"))))
        for name in NAMES:
            self.say(name)
        self.know()

    @property
    def fleet(self) -> Any:
        return self.made.state.fleet

    def say(self, name: str, state: CellState = CellState.rollout, **facts: Any) -> list[Effect]:
        self.seq, self.now = self.seq + 1, self.now + 0.01
        term = self.fleet.cells[name].term
        return tell(self.made, self.now, report(name, self.seq, state=state, **({"term": term} | facts)))

    def know(self) -> None:
        """The gateway has the newest table."""
        self.seq += 1
        acknowledge(self.made, self.now, self.seq)

    def table(self) -> list[str]:
        self.made.handle(self.now, TimerFired("tick"))
        rows, _, _ = self.made.state.table_rows
        return [row.cell for row in rows]

    def follow(self, want: int) -> str:
        """The cell that a decision moves; it is where it should be afterwards."""
        state = self.made.state
        decision = Decision(want=want, reason="data", waterlevel=LEVEL)
        effects = state.lending.follow(self.now, decision, state.fleet, state.batch, state.table_number + 1)
        notes = [effect.fields["cell"] for effect in effects if isinstance(effect, Note)]
        for name in notes:
            cell = state.fleet.cells[name]
            role = Role.train if cell.move is Move.leaving else Role.rollout
            cell.lent_at = self.now
            cell.change_role(role)
            cell.move = Move.none
            cell.report = report(name, 100 + self.seq, state=CellState(role.value), term=cell.term)
            self.now += 1.0
        return notes[0] if notes else ""

    def facts(self) -> Facts:
        state = self.made.state
        return facts_of(
            self.now,
            settings=state.settings,
            fleet=state.fleet,
            groups=state.groups,
            batch=state.batch,
            commit=None,
            lending=state.lending,
            evaluating=False,
            gate_closed=False,
        )


def test_only_cells_that_decode_are_in_the_routing_table() -> None:
    assert Bench().table() == ["cell-1", "cell-3"]


@pytest.mark.parametrize(
    "partner",
    [
        {"state": CellState.switching},
        {"state": CellState.draining},
        {"state": CellState.starting},
        {"version": NEWER},
        {"broken": "its server is lost"},
    ],
)
def test_a_cell_whose_partner_does_not_serve_the_same_has_no_row(partner: dict[str, Any]) -> None:
    bench = Bench()
    bench.say("cell-0", **partner)
    assert bench.table() == ["cell-3"]
    bench.say("cell-0")
    assert bench.table() == ["cell-1", "cell-3"]


def test_a_lost_partner_takes_the_row_with_it_until_it_serves_again() -> None:
    bench = Bench()
    lost = tuple(Entry(name, 1, name, lost="killed" if name == "cell-2" else "") for name in NAMES)
    tell(bench.made, bench.now, Directory(2, lost))
    assert bench.table() == ["cell-1"]


def test_a_pair_whose_weights_are_old_comes_in_only_with_the_newest() -> None:
    bench = Bench()
    bench.say("cell-2", version=NEWER)
    assert bench.table() == ["cell-1"]
    bench.made.state.version = NEWER
    for name in ("cell-2", "cell-3"):
        bench.say(name, version=FIRST)
    assert "cell-3" not in bench.table()
    for name in ("cell-2", "cell-3"):
        bench.say(name, version=NEWER)
    assert "cell-3" in bench.table()


def test_a_first_call_may_meet_what_an_open_cell_serves_while_its_partner_is_elsewhere() -> None:
    """A gateway may go by a table in which the cell is still."""
    bench = Bench()
    bench.made.state.version = NEWER
    for name in ("cell-0", "cell-1", "cell-2"):
        bench.say(name, version=NEWER)
    assert "cell-3" not in bench.table() and bench.fleet.oldest_served_step() == FIRST.step
    bench.say("cell-3", version=NEWER)
    assert bench.fleet.oldest_served_step() == NEWER.step


def test_what_a_prefilling_cell_serves_is_met_by_no_call() -> None:
    bench = Bench()
    bench.made.state.version = NEWER
    for name in ("cell-0", "cell-1", "cell-3"):
        bench.say(name, version=NEWER)
    bench.say("cell-3", state=CellState.switching, version=NEWER)
    assert bench.fleet.cells["cell-2"].report.version == FIRST
    assert bench.fleet.oldest_served_step() == NEWER.step


def test_both_cells_of_a_pair_leave_one_after_the_other_and_the_cores_pair_first() -> None:
    bench = Bench()
    assert [bench.follow(2) for _ in range(5)] == ["cell-1", "cell-0", "cell-3", "cell-2", ""]


def test_both_cells_of_a_pair_come_back_and_the_core_is_the_last_of_all() -> None:
    bench = Bench()
    for _ in range(4):
        bench.follow(2)
    assert [bench.follow(0) for _ in range(5)] == ["cell-2", "cell-3", "cell-1", "cell-0", ""]


def test_a_pair_that_is_half_way_is_completed_or_taken_back_before_anything_else() -> None:
    bench = Bench()
    assert bench.follow(1) == "cell-1"
    assert bench.follow(1) == "cell-0", "not left alone"
    assert bench.follow(1) == ""
    assert bench.follow(2) == "cell-3"
    assert bench.follow(1) == "cell-3", "back, and not first the core's"
    assert bench.follow(1) == ""


def test_a_cell_that_was_lost_joins_its_pair_in_training_again() -> None:
    bench = Bench()
    for _ in range(4):
        bench.follow(2)
    cell = bench.fleet.cells["cell-3"]
    cell.role, cell.report = Role.rollout, report("cell-3", 1000, term=cell.term)
    bench.fleet.core.lost = "killed"
    assert bench.follow(2) == "", "nobody is lent without a core"
    bench.fleet.core.lost = ""
    assert bench.follow(2) == "cell-3"


def test_a_cell_that_leaves_waits_for_the_table_without_it_and_its_partner_for_nothing() -> None:
    bench = Bench()
    state = bench.made.state
    bench.table()
    decision = Decision(want=1, reason="data", waterlevel=LEVEL)
    state.lending.follow(bench.now, decision, state.fleet, state.batch, state.table_number + 1)
    leaving = bench.fleet.cells["cell-1"]
    assert leaving.move is Move.leaving and leaving.left_table == state.table_number + 1
    leaving.change_role(Role.train)
    leaving.move, leaving.in_table = Move.none, False
    leaving.report = report("cell-1", 1000, state=CellState.train, term=leaving.term)
    state.lending.follow(bench.now, decision, state.fleet, state.batch, state.table_number + 1)
    assert bench.fleet.core.move is Move.leaving and bench.fleet.core.left_table == 0


def test_the_scheduler_counts_pairs() -> None:
    bench = Bench()
    assert (bench.facts().cells, bench.facts().training) == (2, 0)
    bench.follow(1)
    facts = bench.facts()
    assert (facts.cells, facts.training, facts.core_training) == (2, 1, True)
    bench.follow(1)
    assert (bench.facts().cells, bench.facts().training) == (2, 1)


def test_half_a_pair_is_nobody_to_the_scheduler_but_half_the_cores_is() -> None:
    """Counted, it would let the last cells that serve be lent; a run without its core trains nothing."""
    bench = Bench()
    bench.fleet.cells["cell-2"].lost = "killed"
    assert bench.facts().cells == 1
    bench.fleet.cells["cell-2"].lost, bench.fleet.cells["cell-1"].lost = "", "killed"
    assert bench.facts().cells == 2
    assert bench.follow(1) == "cell-0"
    bench.fleet.cells["cell-3"].lost = "killed"
    assert bench.follow(2) == "", "the half of a pair without the core stays"


def test_ready_work_is_that_of_a_whole_pair_and_the_curve_that_of_cells_that_decode() -> None:
    bench = Bench(scheduler=SchedulerConfig())
    state = bench.made.state
    state.batch.ledger.add("0:0", 1000, 10)
    for name in NAMES:
        curve = (
            tuple((float(n), 100.0 * n) for n in (1, 2, 3)) if name in ("cell-1", "cell-3") else tuple((float(n), 1.0) for n in (1, 2, 3))
        )
        bench.say(name, train_tokens_per_s=50.0, curve=curve)
    facts = bench.facts()
    assert facts.ready_work_s == pytest.approx(1000 / (2 * 50.0))
    assert (facts.switch_s, facts.pull_s) == (2 * state.lending.switch_s, 2 * state.lending.pull_s)
    assert facts.curve.points == ((1.0, 100.0), (2.0, 200.0), (3.0, 300.0))


def test_kv_goes_from_nobody_to_nobody() -> None:
    """Within a pair it goes with each request; the partner of a cell that leaves takes no calls either."""
    bench = Bench(kv_budget_s=1.0)
    for prefilling, decoding in PAIRS:
        bench.say(prefilling, kv=KvFacts("pd", 100))
        bench.say(decoding, kv=KvFacts("pd", 100))
    for name in NAMES:
        order = kv_order(bench.made.state, bench.fleet.cells[name])
        assert order is not None and order.targets == ()


def test_a_cell_that_prefills_is_at_work_when_its_partner_has_calls() -> None:
    bench = Bench()
    prefilling = bench.fleet.cells["cell-2"]
    assert activity_of(bench.made.state, prefilling).partition(":")[2]
    bench.say("cell-3", live_requests=3)
    assert activity_of(bench.made.state, prefilling) == "rollout:"


def test_the_cell_that_prefills_gets_new_weights_first() -> None:
    bench = Bench()
    bench.made.state.version = NEWER
    bench.say("cell-0", snapshots=(FIRST, NEWER), version=NEWER)

    def ordered(effects: list[Effect]) -> dict[str, Version | None]:
        return {effect.to: effect.message.version for effect in effects if isinstance(effect, Send) and isinstance(effect.message, Order)}

    bench.now += 2.0
    asked = ordered(bench.made.handle(bench.now, TimerFired("tick")))
    assert (asked["cell-2"], asked["cell-3"]) == (NEWER, FIRST)
    assert ordered(bench.say("cell-2", snapshots=(FIRST, NEWER), version=NEWER))["cell-3"] == NEWER
    bench.fleet.cells["cell-2"].lost = "killed"
    bench.now += 2.0
    assert ordered(bench.made.handle(bench.now, TimerFired("tick")))["cell-3"] == NEWER, "alone it waits for nobody"


def test_without_pairs_every_cell_is_a_unit_of_its_own() -> None:
    made, _ = machine(*HISTORY)
    assert [[cell.name for cell in unit] for unit in made.state.fleet.units] == [["cell-0"], ["cell-1"], ["cell-2"]]


def tables(effects: list[Effect]) -> list[Table]:
    return [effect.message for effect in effects if isinstance(effect, Send) and isinstance(effect.message, Table)]


def test_gateways_hear_of_a_partner_that_stopped_serving_at_once() -> None:
    bench = Bench()
    bench.table()
    bench.know()
    (table,) = tables(bench.say("cell-2", state=CellState.switching))
    assert [row.cell for row in table.rows] == ["cell-1"]
