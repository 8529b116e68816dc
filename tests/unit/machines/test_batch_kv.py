"""KV of cells that leave rollout: whom it may go to, for how long that stands, and how gateways hear where it went."""

from typing import Any

import pytest

from gyre_hpc.config.schema import SchedulerConfig
from gyre_hpc.machines.base import Effect, Note, Send, TimerFired
from gyre_hpc.machines.batch import BatchMachine
from gyre_hpc.machines.batch.fleet import Move
from gyre_hpc.machines.batch.lending import to_move
from gyre_hpc.machines.batch.moving import kv_order
from gyre_hpc.protocol.identity import Role, Version
from gyre_hpc.protocol.to_batch import CellState, GatewayReport, KvFacts, Moved, SwitchTiming
from gyre_hpc.protocol.to_cell import KvTarget, Order
from gyre_hpc.protocol.to_gateway import Table
from gyre_hpc.scheduler.base import Decision, Waterlevel
from tests.fakes.batch_bench import CELLS, acknowledge, report, serving, tell
from tests.fakes.batch_world import BatchWorld

LIVE = ("train-0-0-0", "train-0-1-0", "train-1-0-0", "train-1-1-0")
PAGES = KvFacts("pages", 1000)


def with_kv(kv: tuple[KvFacts, ...] = (PAGES,) * 3, **facts: Any) -> BatchMachine:
    """Three cells that serve, with what they say of their KV."""
    made = serving(kv_budget_s=2.0)
    for name, one in zip(CELLS, kv, strict=True):
        tell(made, 0.2, report(name, 2, term=made.state.settings.number_base, kv=one, **facts.get(name, {})))
    return made


def lend(made: BatchMachine, name: str = "cell-0") -> Order:
    """`name` leaves the table, the gateway knows it: its order of the new term."""
    cell = made.state.fleet.cells[name]
    cell.move, cell.left_table, cell.lent_at = Move.leaving, made.state.table_number + 1, 0.3
    made.handle(0.3, TimerFired("tick"))
    return next(order for order in orders(acknowledge(made, 0.4, 2)) if order[0] == name)[1]


def orders(effects: list[Effect]) -> list[tuple[str, Order]]:
    return [(effect.to, effect.message) for effect in effects if isinstance(effect, Send) and isinstance(effect.message, Order)]


def tables(effects: list[Effect]) -> list[Table]:
    return [effect.message for effect in effects if isinstance(effect, Send) and isinstance(effect.message, Table)]


def test_a_leaving_cell_may_give_to_every_cell_of_the_table_with_its_version_and_room() -> None:
    made = with_kv((PAGES, KvFacts("pages", 300), KvFacts("pages", 400)), **{"cell-2": {"live_requests": 7}})
    order = lend(made)
    assert order.kv is not None
    assert order.kv.targets == (KvTarget("cell-1", 300), KvTarget("cell-2", 400, 7))
    assert order.kv.live == LIVE and order.kv.budget_s == 2.0


@pytest.mark.parametrize(
    "other",
    [
        {"kv": KvFacts("pages", 0)},
        {"kv": KvFacts("none", 500)},
        {"kv": KvFacts("shared", 500)},
        {"kv": PAGES, "version": Version(0, 1)},
        {"kv": PAGES, "state": CellState.switching},
    ],
)
def test_cells_without_room_with_other_weights_or_another_kind_of_kv_are_no_targets(other: dict[str, Any]) -> None:
    made = with_kv()
    tell(made, 0.25, report("cell-1", 3, term=made.state.settings.number_base, **other))
    order = lend(made)
    assert order.kv is not None and [target.cell for target in order.kv.targets] == ["cell-2"]


def test_what_was_ordered_stands_for_the_whole_term() -> None:
    made = with_kv()
    first = lend(made)
    made.state.groups.live.popitem()
    tell(made, 0.5, report("cell-1", 3, term=made.state.settings.number_base, kv=KvFacts("pages", 5)))
    cell = made.state.fleet.core
    assert cell.kv == first.kv and len(first.kv.live) == 4  # type: ignore[union-attr]
    cell.change_role(Role.train)
    assert cell.kv is None, "another term, another order"


def test_back_in_rollout_there_is_no_order_about_kv() -> None:
    made = with_kv()
    lend(made)
    core = made.state.fleet.core
    tell(made, 0.5, report("cell-0", 3, state=CellState.train, term=core.term))
    core.move = Move.finishing
    (order,) = [order for to, order in orders(made.handle(0.6, TimerFired("tick"))) if to == "cell-0"]
    assert order.role.value == "rollout" and order.kv is None


def test_kv_stays_where_it_is_when_it_does_not_travel_in_this_run() -> None:
    made = serving()
    assert lend(made).kv is None


@pytest.mark.parametrize(("want", "targets"), [(1, ["cell-1", "cell-2"]), (2, ["cell-2"]), (3, [])])
def test_cells_that_leave_next_are_no_targets(want: int, targets: list[str]) -> None:
    made = with_kv()
    core = made.state.fleet.core
    core.move = Move.leaving
    level = Waterlevel(live=4, marginal=0.0, ready=1.0, cells_needed=0, theta=1.0)
    made.state.decision = Decision(want=want, reason="data", waterlevel=level)
    order = kv_order(made.state, core)
    assert order is not None and [target.cell for target in order.targets] == targets


def test_gateways_are_told_where_conversations_of_live_executions_went_for_a_while() -> None:
    made = with_kv()
    lend(made)
    core = made.state.fleet.core
    moved = (Moved("train-0-0-0/4", "cell-1"), Moved("train-9-9-9/0", "cell-2"))
    said = report("cell-0", 3, state=CellState.draining, term=core.term, moved=moved)
    (table,) = tables(tell(made, 0.5, said))
    assert table.moved == (("train-0-0-0/4", "cell-1"),)
    again = report("cell-0", 4, state=CellState.train, term=core.term, moved=moved)
    later = tables(tell(made, 10.0, again)) + tables(made.handle(12.0, TimerFired("tick")))
    assert later[-1].moved == table.moved
    assert tables(made.handle(15.6, TimerFired("tick")))[-1].moved == (), "said again by the cell, and yet no news"


def test_the_move_of_an_execution_that_ended_is_forgotten() -> None:
    made = with_kv()
    lend(made)
    tell(
        made, 0.5, report("cell-0", 3, state=CellState.draining, term=made.state.fleet.core.term, moved=(Moved("train-0-0-0/4", "cell-1"),))
    )
    made.state.groups.live.pop("train-0-0-0")
    assert tables(made.handle(0.6, TimerFired("tick")))[-1].moved == ()


def test_of_satellites_with_equal_load_the_one_with_the_least_kv_leaves() -> None:
    busy, held = {"live_requests": 3}, KvFacts("pages", 200)
    made = with_kv((PAGES, held, PAGES))
    state = made.state
    state.fleet.core.change_role(state.fleet.core.role)
    least = min(state.fleet.satellites, key=to_move)
    assert least.name == "cell-2", "it has the most room"
    tell(made, 0.3, report("cell-2", 3, term=state.settings.number_base, kv=PAGES, **busy))
    assert min(state.fleet.satellites, key=to_move).name == "cell-1", "calls weigh more than what is cached"


def test_the_time_until_every_gateway_knew_is_the_first_step_of_the_switch() -> None:
    made = with_kv()
    lend(made)
    switch = SwitchTiming(made.state.fleet.core.term, "rollout_to_train", {"close_admission": 0.5, "wake_trainer": 1.0})
    effects = tell(made, 2.0, report("cell-0", 3, state=CellState.train, term=made.state.fleet.core.term, switch=switch))
    (note,) = [effect for effect in effects if isinstance(effect, Note) and effect.kind == "switch"]
    assert list(note.fields["steps"]) == ["leave_table", "close_admission", "wake_trainer"]
    assert note.fields["steps"]["leave_table"] == pytest.approx(0.1)
    assert list(made.state.lending._seconds["rollout_to_train"]) == [1.5], "the cell served meanwhile"


def test_a_cell_closes_only_when_every_gateway_with_a_valid_lease_knows_that_it_left() -> None:
    made = serving(gateways=("gateway-0", "gateway-1"), table_lease_s=5.0)
    core = made.state.fleet.core
    core.move, core.left_table, core.lent_at = Move.leaving, made.state.table_number + 1, 0.3
    made.handle(0.3, TimerFired("tick"))
    acknowledge(made, 0.4, 2)
    assert core.move is Move.leaving, "gateway-1 may go by a table of the controller before this one"
    tell(made, 0.5, GatewayReport("gateway-1", 1, 1, core.left_table - 1, 0), "gateway-1")
    assert core.move is Move.leaving, "it goes by an older table"
    acknowledge(made, 5.0, 3)
    assert core.move is Move.leaving
    acknowledge(made, 5.6, 4)
    made.handle(5.7, TimerFired("tick"))
    assert core.move is Move.ordered, "its lease has run out"


def test_in_a_whole_run_cells_give_to_cells_that_serve_and_gateways_hear_of_it() -> None:
    scheduler = SchedulerConfig(lead_floor_s=0, lead_factor=0.1, dwell_s=0.5)
    world = BatchWorld(scheduler=scheduler, cells=4, updates=4, groups=6, kv=KvFacts("pages", 10_000))
    world.run()
    assert world.finished is not None and world.finished.exit_code == 0
    assert len({name for name, _ in world.given}) > 1, "the core gives, and satellites do"
    assert all(move.cell != name for name, action in world.given for move in action.moves)
    told = {pair for table in world.tables for pair in table.moved}
    assert told and told <= {(move.call, move.cell) for _, action in world.given for move in action.moves}
    assert world.tables[-1].moved == (), "nobody lives any more"
