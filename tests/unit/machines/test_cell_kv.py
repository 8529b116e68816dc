"""The cell machine gives its KV away on its way out of rollout, and holds up nothing but the sleep of leased pages."""

import pytest

from gyre_hpc.machines.cell.actions import (
    AbortLive,
    CloseAdmission,
    ListConversations,
    MoveKv,
    MoveResult,
    QuietKv,
    SleepEngine,
    WakeTrainer,
)
from gyre_hpc.protocol.identity import Role
from gyre_hpc.protocol.to_batch import CellState, KvFacts, Moved
from gyre_hpc.protocol.to_cell import KvOrder, KvTarget, Order
from gyre_hpc.scheduler.migration import Conversation
from tests.fakes.cell_driver import V0, CellDriver

LONG, SHORT, OVER = "train-0-0-0/3", "train-0-0-1/1", "train-0-0-9/0"
TARGETS = (KvTarget("cell-1", 5000), KvTarget("cell-2", 5000, 4))


def conversation(call: str, num_tokens: int, is_live: bool = True) -> Conversation:
    return Conversation(call=call, num_tokens=num_tokens, is_live=is_live)


def serving(capability: str = "pages") -> CellDriver:
    cell = CellDriver()
    cell.body.kv = KvFacts(capability, 8000)
    cell.body.conversations = (conversation(SHORT, 100, False), conversation(LONG, 3000), conversation(OVER, 900))
    cell.order(term=1, role=Role.rollout, version=V0, is_core=True)
    cell.settle()
    cell.ran.clear()
    return cell


def kv(*targets: KvTarget, budget_s: float = 2.0) -> KvOrder:
    return KvOrder(targets or TARGETS, ("train-0-0-0", "train-0-0-1"), budget_s)


def leave(cell: CellDriver, *targets: KvTarget, term: int = 2, budget_s: float = 2.0) -> Order:
    return cell.order(term=term, role=Role.train, version=V0, update=0, is_core=True, kv=kv(*targets, budget_s=budget_s))


def give(cell: CellDriver) -> None:
    """Up to the abort of what is live."""
    leave(cell)
    for kind in (CloseAdmission, ListConversations, MoveKv):
        cell.finish(kind)


def noted(cell: CellDriver, kind: str) -> list[dict]:
    return [note.fields for note in cell.notes if note.kind == kind]


def test_kv_goes_between_the_closed_gate_and_the_abort_and_pages_are_quiet_before_the_engine_sleeps() -> None:
    cell = serving()
    give(cell)
    cell.settle()
    steps = ["close_admission", "list_conversations", "move_kv", "abort_live", "quiet_kv", "sleep_engine", "wake_trainer"]
    assert cell.ran == steps
    assert cell.report.switch is not None and list(cell.report.switch.steps) == steps
    assert cell.report.state is CellState.train


def test_live_executions_move_the_longest_first_and_others_stay() -> None:
    cell = serving()
    give(cell)
    (move_kv,) = cell.body.given
    assert [(move.call, move.cell) for move in move_kv.moves] == [(LONG, "cell-1"), (SHORT, "cell-1")]
    assert move_kv.deadline_s == pytest.approx(2.0 - 0.125), "the listing took its part of the budget"
    (note,) = noted(cell, "kv_moved")
    assert (note["conversations"], note["of"], note["tokens"], note["targets"]) == (2, 2, 3100, ["cell-1"])


def test_the_abort_tells_where_the_kv_went_and_the_report_too_until_admission_opens_again() -> None:
    cell = serving()
    give(cell)
    moved = (Moved(LONG, "cell-1"), Moved(SHORT, "cell-1"))
    (abort,) = [action for action in cell.running.values() if isinstance(action, AbortLive)]
    assert abort.moved == moved
    cell.settle()
    assert cell.report.moved == moved and cell.report.term == 2
    cell.order(term=3, role=Role.rollout, version=V0, update=0, is_core=True)
    cell.settle()
    assert cell.report.moved == ()


@pytest.mark.parametrize("capability", ["none", "pages"])
def test_nothing_is_listed_without_targets_or_without_a_capability(capability: str) -> None:
    cell = serving(capability)
    targets = TARGETS if capability == "none" else ()
    quiet = [] if capability == "none" else ["quiet_kv"]
    cell.order(term=2, role=Role.train, version=V0, update=0, is_core=True, kv=KvOrder(targets, ("train-0-0-0",), 2.0))
    cell.settle()
    assert cell.ran == ["close_admission", "abort_live", *quiet, "sleep_engine", "wake_trainer"]


def test_others_may_be_writing_here_even_when_nothing_leaves() -> None:
    cell = serving()
    cell.order(term=2, role=Role.train, version=V0, update=0, is_core=True)
    cell.body.leases, cell.body.is_read = 1, True
    for kind in (CloseAdmission, AbortLive, QuietKv):
        cell.finish(kind)
    assert not cell.is_running(SleepEngine) and "1 leases or reservations are open" in cell.report.error
    cell.body.is_read = False
    cell.settle()
    assert cell.report.state is CellState.train


def test_shared_kv_needs_no_transfer_but_gets_homes() -> None:
    cell = serving("shared")
    leave(cell)
    cell.finish(CloseAdmission)
    cell.finish(ListConversations)
    assert not cell.is_running(MoveKv)
    (abort,) = [action for action in cell.running.values() if isinstance(action, AbortLive)]
    assert {one.call for one in abort.moved} == {LONG, SHORT}
    cell.finish(AbortLive)
    assert cell.is_running(SleepEngine), "nobody reads pages here"


@pytest.mark.parametrize("kind", [ListConversations, MoveKv])
def test_a_step_of_kv_that_fails_does_not_hold_the_switch_up(kind: type) -> None:
    cell = serving()
    leave(cell)
    cell.finish(CloseAdmission)
    if kind is MoveKv:
        cell.finish(ListConversations)
    cell.fail(kind, "no such thing", "TransferFailed")
    assert "no such thing" in cell.report.error
    assert cell.is_running(AbortLive) and cell.report.moved == ()
    assert "no such thing" in noted(cell, "kv_stays")[0]["reason"]
    cell.settle()
    assert cell.ran.count("list_conversations") == (kind is MoveKv)
    assert cell.report.state is CellState.train and cell.report.error == ""


def test_a_failed_transfer_may_have_leased_pages_so_they_are_counted_before_the_engine_sleeps() -> None:
    cell = serving()
    leave(cell)
    cell.finish(CloseAdmission)
    cell.finish(ListConversations)
    cell.body.leases, cell.body.is_read = 1, True
    cell.fail(MoveKv)
    cell.finish(AbortLive)
    assert cell.is_running(QuietKv)
    cell.finish(QuietKv)
    assert not cell.is_running(SleepEngine) and "1 leases or reservations are open" in cell.report.error
    cell.body.is_read = False
    cell.fire("step_retry")
    cell.finish(QuietKv)
    assert cell.is_running(SleepEngine) and cell.report.error == ""


def test_a_role_taken_back_leaves_leases_open_and_the_next_departure_counts_them() -> None:
    cell = serving()
    give(cell)
    cell.order(term=3, role=Role.rollout, version=V0, is_core=True)
    cell.finish(AbortLive)
    cell.settle()
    assert cell.report.state is CellState.rollout and cell.body.leases == 1
    assert cell.report.moved == (), "what moved is here as well"
    cell.ran.clear()
    cell.order(term=4, role=Role.train, version=V0, update=0, is_core=True)
    cell.finish(CloseAdmission)
    cell.finish(AbortLive)
    assert cell.is_running(QuietKv)
    cell.body.is_read = True
    cell.finish(QuietKv)
    assert not cell.is_running(SleepEngine)
    cell.body.is_read = False
    cell.settle()
    assert cell.report.state is CellState.train


def test_a_newer_order_in_the_middle_neither_lists_nor_moves_again() -> None:
    cell = serving()
    give(cell)
    leave(cell, term=4)
    cell.settle()
    assert (cell.ran.count("list_conversations"), cell.ran.count("move_kv")) == (1, 1)


def test_a_newer_order_before_the_plan_is_the_one_that_is_planned_by() -> None:
    cell = serving()
    leave(cell)
    cell.finish(CloseAdmission)
    leave(cell, KvTarget("cell-7", 5000), term=4)
    cell.finish(ListConversations)
    (action,) = [action for action in cell.running.values() if isinstance(action, MoveKv)]
    assert {move.cell for move in action.moves} == {"cell-7"}


def test_nothing_moves_once_the_budget_is_spent() -> None:
    cell = serving()
    leave(cell, budget_s=0.1)
    cell.finish(CloseAdmission)
    cell.finish(ListConversations)
    assert cell.is_running(AbortLive)
    assert "no time is left" in noted(cell, "kv_stays")[0]["reason"]


def test_a_slow_transfer_is_measured_and_makes_prefill_the_faster_way() -> None:
    cell = serving()
    leave(cell)
    cell.finish(CloseAdmission)
    cell.finish(ListConversations)
    cell.finish(MoveKv, MoveResult(num_tokens=300, seconds=1.0, trouble="cell-1 took 300 tokens"))
    cell.settle()
    assert noted(cell, "kv_moved")[0]["trouble"] == "cell-1 took 300 tokens"
    for term in range(3, 60):
        cell.order(term=2 * term, role=Role.rollout, version=V0, is_core=True)
        cell.settle(1)
        leave(cell, term=2 * term + 1)
        if term == 3:
            cell.finish(CloseAdmission)
            cell.finish(ListConversations)
            assert cell.is_running(AbortLive)
            assert "prefill is faster (4000 tokens/s against 300)" in noted(cell, "kv_stays")[0]["reason"]
        cell.settle(1)
        if len(cell.body.given) > 1:
            return
    raise AssertionError("one slow transfer was the last one ever tried")


def test_pages_that_a_target_had_already_count_as_moved() -> None:
    """Or a cell whose neighbours share its prefixes would take transfers to be slow, and never try one again."""
    cell = serving()
    leave(cell)
    cell.finish(CloseAdmission)
    cell.finish(ListConversations)
    (action,) = [action for action in cell.running.values() if isinstance(action, MoveKv)]
    moved = tuple(Moved(move.call, move.cell) for move in action.moves)
    cell.finish(MoveKv, MoveResult(moved=moved, num_tokens=16, seconds=0.5))
    planned = sum(move.num_tokens for move in action.moves)
    assert cell.machine.state.giving.speeds(cell.settings).move == planned / 0.5


def test_prefill_is_as_fast_as_the_engine_was_seen_to_be() -> None:
    cell = serving()
    for prefilled in (0, 60_000, 60_000, 61_000):
        cell.body.tokens = {"prefilled": prefilled}
        cell.now += 1.0
        cell.beat()
    giving = cell.machine.state.giving
    assert 40_000 < giving.speeds(cell.settings).prefill < 60_000
    cell.body.curve = ((1.0, 30_000.0), (8.0, 70_000.0), (16.0, 65_000.0))
    cell.beat()
    assert giving.speeds(cell.settings).prefill == 70_000, "an engine prefills no slower than it decodes many calls"
    leave(cell)
    cell.finish(CloseAdmission)
    cell.finish(ListConversations)
    assert cell.is_running(AbortLive) and not cell.body.given


def test_the_trainer_wakes_with_leases_of_nobody() -> None:
    cell = serving()
    give(cell)
    for kind in (AbortLive, QuietKv, SleepEngine):
        cell.finish(kind)
    assert cell.is_running(WakeTrainer)
