"""Planning of KV migration: what is worth moving, where it fits, and how near the plan comes to the best one."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gyre_hpc.protocol.to_batch import KvFacts
from gyre_hpc.scheduler.migration import WORST_SHARE, Conversation, Plan, Speeds, Target, may_take, plan, plan_moves

FAST = Speeds(prefill=1000.0, move=10_000.0)

lengths = st.integers(0, 300)
conversations = st.lists(
    st.builds(Conversation, call=st.integers(0, 60).map(lambda i: f"train-0-0-{i % 7}/{i}"), num_tokens=lengths, is_live=st.booleans()),
    max_size=12,
    unique_by=lambda one: one.call,
)
targets = st.lists(
    st.builds(Target, cell=st.integers(1, 9).map(lambda i: f"cell-{i}"), free_tokens=st.integers(0, 600), live_requests=st.integers(0, 5)),
    max_size=4,
    unique_by=lambda one: one.cell,
)
budgets = st.floats(0.0, 0.2)


def one(call: str, num_tokens: int, is_live: bool = True) -> Conversation:
    return Conversation(call=call, num_tokens=num_tokens, is_live=is_live)


@given(conversations, targets, budgets)
def test_room_and_budget_are_kept_and_nothing_goes_twice(some: list[Conversation], where: list[Target], budget_s: float) -> None:
    moves = plan_moves(some, where, FAST, budget_s)
    assert len({move.call for move in moves}) == len(moves)
    assert sum(move.num_tokens for move in moves) / FAST.move <= budget_s + 1e-6
    room = {target.cell: target.free_tokens for target in where}
    lengths_of = {each.call: each.num_tokens for each in some}
    for move in moves:
        assert move.num_tokens == lengths_of[move.call] > 0
        room[move.cell] -= move.num_tokens
    assert all(left >= 0 for left in room.values())
    assert [move.num_tokens for move in moves] == sorted((move.num_tokens for move in moves), reverse=True)


@given(conversations, targets, budgets, st.randoms())
def test_the_same_facts_give_the_same_plan_in_whatever_order_they_come(some, where, budget_s, dice) -> None:  # type: ignore[no-untyped-def]
    expected = plan_moves(some, where, FAST, budget_s)
    dice.shuffle(some)
    dice.shuffle(where)
    assert plan_moves(some, where, FAST, budget_s) == expected


@settings(max_examples=60)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.lists(st.integers(0, 45), min_size=1, max_size=3), st.integers(0, 90))
def test_a_plan_spares_at_least_a_third_of_the_most_that_can_be(lengths: list[int], rooms: list[int], budget: int) -> None:
    some = [one(f"e/{i}", length) for i, length in enumerate(lengths)]
    where = [Target(cell=f"cell-{i}", free_tokens=room) for i, room in enumerate(rooms)]
    planned = sum(move.num_tokens for move in plan_moves(some, where, FAST, budget / FAST.move))
    assert planned >= WORST_SHARE * best(lengths, rooms, budget)


def best(lengths: list[int], rooms: list[int], budget: int) -> int:
    """Most tokens that fit, by trying everything."""
    most = 0
    for places in product(range(-1, len(rooms)), repeat=len(lengths)):
        loads = [0] * len(rooms)
        for place, length in zip(places, lengths, strict=True):
            if place >= 0:
                loads[place] += length
        if sum(loads) <= budget and all(load <= room for load, room in zip(loads, rooms, strict=True)):
            most = max(most, sum(loads))
    return most


def test_a_transfer_slower_than_prefill_is_not_worth_it() -> None:
    where = [Target(cell="cell-1", free_tokens=1000)]
    assert plan_moves([one("e/0", 100)], where, Speeds(prefill=500.0, move=500.0), 9.0) == ()
    assert plan_moves([one("e/0", 100)], where, Speeds(prefill=500.0, move=501.0), 9.0) != ()


def test_the_longest_go_first_and_of_equal_ones_those_that_are_computed_now() -> None:
    some = [one("e/0", 100, False), one("e/1", 300, False), one("e/2", 100, True), one("e/3", 200, True)]
    moves = plan_moves(some, [Target(cell="cell-1", free_tokens=1000)], FAST, 0.06)
    assert [move.call for move in moves] == ["e/1", "e/3", "e/2"], "600 tokens of time"


def test_what_is_too_long_for_the_time_left_does_not_keep_a_shorter_one_back() -> None:
    moves = plan_moves([one("e/0", 500), one("e/1", 90)], [Target(cell="cell-1", free_tokens=1000)], FAST, 0.01)
    assert [move.call for move in moves] == ["e/1"]


def test_load_is_spread_over_the_targets() -> None:
    where = [Target(cell="cell-1", free_tokens=1000, live_requests=2), Target(cell="cell-2", free_tokens=900)]
    moves = plan_moves([one(f"e/{i}", 100) for i in range(4)], where, FAST, 9.0)
    assert [move.cell for move in moves] == ["cell-2", "cell-2", "cell-1", "cell-2"]


def test_capabilities_decide_what_a_plan_may_hold() -> None:
    some, where = [one("e/0", 100), one("e/1", 5000)], [Target(cell="cell-1", free_tokens=1000)]
    assert plan("none", some, where, FAST, 9.0) == Plan()
    assert [move.call for move in plan("pages", some, where, FAST, 9.0).moves] == ["e/0"]
    shared = plan("shared", some, where, FAST, 0.0)
    assert shared.moves == () and [home.call for home in shared.homes] == ["e/1", "e/0"], "nothing travels, so nothing is too long"
    assert plan("shared", some, [], FAST, 9.0) == Plan()
    assert plan("pd", some, where, FAST, 9.0) == plan("pages", some, where, FAST, 9.0)


@pytest.mark.parametrize("capability", ["pages", "shared"])
def test_pages_and_shared_caches_go_to_their_like(capability: str) -> None:
    kinds = ["none", "pages", "pd", "shared"]
    assert [kind for kind in kinds if may_take("cell-0", KvFacts(capability), KvFacts(kind))] == [capability]


def test_a_prefill_cell_gives_only_to_the_cell_that_decodes_for_it() -> None:
    gives = KvFacts("pd")
    assert may_take("cell-0", gives, KvFacts("pd", decodes_for="cell-0"))
    assert not may_take("cell-0", gives, KvFacts("pd", decodes_for="cell-3"))
    assert not may_take("cell-0", gives, KvFacts("pages"))


def test_a_cell_without_a_capability_gives_nothing() -> None:
    assert not any(may_take("cell-0", KvFacts(), KvFacts(kind)) for kind in ("none", "pages", "pd", "shared"))
