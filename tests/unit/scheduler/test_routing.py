"""The choice of a cell for a call, and what is measured for it."""

import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.scheduler.routing import FEWEST, Line, Pace, choose


@dataclass(frozen=True)
class Place:
    cell: str
    capacity: int = 8


def measured(prefill_s: float = 1e-3, slowdown_s: float = 1e-3, seconds: float = 2.0, output: int = 20) -> Pace:
    """What a pace says after calls that took just that."""
    pace = Pace()
    for number in range(200):
        pace.first_token(0.01 + prefill_s * (100 + number % 50), 100 + number % 50)
        pace.ended(seconds, (0.005 + slowdown_s * (1 + number % 7)) * (output - 1), output, 1 + number % 7)
    return pace


PACE = measured()
CELLS = [Place(f"cell-{number}") for number in range(4)]
LOADS = st.dictionaries(st.sampled_from([place.cell for place in CELLS]), st.integers(0, 12))
TOKENS = st.dictionaries(st.sampled_from([place.cell for place in CELLS]), st.integers(0, 5000))


def pick(
    places: list[Place],
    loads: dict[str, int],
    prefilling: dict[str, int] | None = None,
    tokens: int = 100,
    home: str = "",
    held: int = 0,
    pace: Pace = PACE,
) -> str:
    place = choose(places, loads=loads, prefilling=prefilling or {}, num_tokens=tokens, home=home, held=held, pace=pace)
    return place.cell if place is not None else ""


def test_averages_find_what_calls_took():
    assert PACE.is_known
    assert PACE.prefill_s == pytest.approx(1e-3, rel=0.2)
    assert PACE.slowdown_s == pytest.approx(1e-3, rel=0.2)
    assert (PACE.service_s, PACE.output) == (pytest.approx(2.0), pytest.approx(20.0))


def test_nothing_is_used_before_enough_is_seen():
    pace = Pace()
    for _ in range(FEWEST - 1):
        pace.first_token(1.0, 100)
        pace.ended(1.0, 1.0, 10, 1)
    assert not pace.is_known
    pace.first_token(1.0, 100)
    pace.ended(1.0, 1.0, 10, 1)
    assert pace.is_known


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), max_size=50), st.sampled_from([0.0, 8.0]))
def test_a_slope_lies_between_nothing_and_a_line_through_zero(points: list[tuple[float, float]], half: float):
    line = Line(half=half)
    for x, y in points:
        line.add(x, y)
    steepest = line.y / line.x if line.x else 0.0
    assert 0.0 <= line.slope <= steepest * (1 + 1e-9)


def test_without_measurements_a_call_goes_home_until_that_is_full_else_to_the_least_load():
    assert pick(CELLS, {"cell-0": 7}, home="cell-0", pace=Pace()) == "cell-0"
    assert pick(CELLS, {"cell-0": 8}, home="cell-0", pace=Pace()) == "cell-1"
    assert pick([Place("a", 2), Place("b", 8)], {"a": 1, "b": 2}, pace=Pace()) == "b"


def test_home_stays_while_waiting_there_is_shorter_than_computing_the_prefix_elsewhere():
    # 1,000 tokens held: 8 s counted for computing them elsewhere. 0.001 s per token on its way.
    assert pick(CELLS, {}, {"cell-2": 7_000}, tokens=1000, home="cell-2", held=1000) == "cell-2"
    assert pick(CELLS, {}, {"cell-2": 12_000}, tokens=1000, home="cell-2", held=1000) != "cell-2"
    assert pick(CELLS, {}, {"cell-2": 12_000}, tokens=10_000, home="cell-2", held=10_000) == "cell-2"


def test_a_home_without_a_free_place_gives_way_to_one_that_has():
    # A full home costs a whole service per round of its places: 2 s x (calls beyond) / 8.
    assert pick(CELLS, {"cell-2": 8}, tokens=10, home="cell-2", held=10) == "cell-0"
    assert pick(CELLS, {"cell-2": 8}, tokens=10_000, home="cell-2", held=10_000) == "cell-2"
    assert pick(CELLS, {"cell-2": 7}, tokens=10, home="cell-2", held=10) == "cell-2"


def test_a_call_without_a_home_avoids_long_prefills_and_many_calls():
    assert pick(CELLS, {}, {"cell-0": 50, "cell-1": 10, "cell-2": 20, "cell-3": 11}) == "cell-1"
    assert pick(CELLS, {"cell-0": 3, "cell-1": 2, "cell-2": 1, "cell-3": 2}) == "cell-2"


def test_load_counts_relative_to_capacity():
    assert pick([Place("a", 2), Place("b", 32)], {"a": 4, "b": 5}) == "b"


def test_there_may_be_no_place():
    assert pick([], {}) == ""


@given(LOADS, TOKENS, st.integers(1, 5000), st.sampled_from(["", "cell-0", "cell-3", "gone"]), st.integers(0, 5000), st.randoms())
def test_the_choice_is_a_place_whatever_their_order(
    loads: dict[str, int], prefilling: dict[str, int], tokens: int, home: str, held: int, rng: random.Random
):
    mixed = list(CELLS)
    rng.shuffle(mixed)
    first = pick(CELLS, loads, prefilling, tokens, home, min(held, tokens))
    assert first in {place.cell for place in CELLS}
    assert pick(mixed, loads, prefilling, tokens, home, min(held, tokens)) == first


@given(LOADS, TOKENS, st.integers(1, 5000), st.integers(0, 5000), st.sampled_from([PACE, Pace()]))
def test_more_calls_and_more_tokens_on_their_way_are_never_preferred(
    loads: dict[str, int], prefilling: dict[str, int], tokens: int, held: int, pace: Pace
):
    chosen = pick(CELLS, loads, prefilling, tokens, pace=pace)
    for other in (place.cell for place in CELLS):
        if loads.get(other, 0) <= loads.get(chosen, 0) and prefilling.get(other, 0) <= prefilling.get(chosen, 0):
            same = (loads.get(other, 0), prefilling.get(other, 0)) == (loads.get(chosen, 0), prefilling.get(chosen, 0))
            assert same or pace is not PACE
    equal = {place.cell: 1 for place in CELLS}
    assert pick(CELLS, equal, equal, tokens, "cell-2", min(held, tokens), pace) == "cell-2", "of equal cells it is home"
