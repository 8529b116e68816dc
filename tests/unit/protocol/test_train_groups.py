"""Compact sets: what a set of numbers holds it holds, whatever it was told in which order, and as few runs tell it as can."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.protocol.identity import GroupId
from gyre_hpc.protocol.ranges import Ranges
from gyre_hpc.protocol.train_groups import TrainGroups

SOME = st.sets(st.integers(0, 40))
RUNS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)))
GROUPS = st.sets(st.builds(GroupId, st.just("train"), st.integers(0, 9), st.integers(0, 3)))


@given(SOME)
def test_it_holds_what_it_was_made_of(numbers: set[int]) -> None:
    held = Ranges.of(numbers)
    assert list(held) == sorted(numbers) and len(held) == len(numbers)
    assert [number in held for number in range(-1, 43)] == [number in numbers for number in range(-1, 43)]


@given(SOME, RUNS)
def test_a_union_holds_both_and_nothing_else(numbers: set[int], runs: list[tuple[int, int]]) -> None:
    both = Ranges.of(numbers).united(runs)
    assert set(both) == numbers | {number for first, behind in runs for number in range(first, behind)}


@given(SOME, RUNS)
def test_equal_sets_are_equal_values_of_as_few_runs_as_can_be(numbers: set[int], runs: list[tuple[int, int]]) -> None:
    both = Ranges.of(numbers).united(runs)
    assert both == Ranges.of(both) == Ranges().united(reversed(both.runs))
    assert all(behind < first for (_, behind), (first, _) in zip(both.runs, both.runs[1:], strict=False))
    assert len(both.runs) == sum(number - 1 not in both for number in both)


@given(st.permutations(range(60)), st.integers(1, 4))
def test_groups_that_are_consumed_in_whatever_order_are_one_run_in_the_end(order: list[int], per_batch: int) -> None:
    held = TrainGroups(per_batch)
    for number in order:
        held = held.united([GroupId("train", *divmod(number, per_batch))])
    assert held.numbers.runs == ((0, 60),)
    assert held.holds("train-0-0-5-r2") and not held.holds(f"train-{60 // per_batch + 1}-0-0")


@given(GROUPS)
def test_groups_come_back_from_what_is_stored_and_sent(groups: set[GroupId]) -> None:
    held = TrainGroups.of(4, groups)
    assert TrainGroups.read(msgspec.json.decode(msgspec.json.encode(held.plain()))) == held
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(held), type=TrainGroups) == held
    assert list(held) == sorted(groups) and all(group in held for group in groups)


@given(GROUPS, GROUPS)
def test_two_sets_of_groups_join(one: set[GroupId], other: set[GroupId]) -> None:
    assert set(TrainGroups.of(4, one).joined(TrainGroups.of(4, other))) == one | other
    assert TrainGroups().joined(TrainGroups.of(4, one)) == TrainGroups.of(4, one).joined(TrainGroups()) or not one


@given(GROUPS)
def test_the_names_that_older_runs_stored_name_the_same_groups(groups: set[GroupId]) -> None:
    held = TrainGroups.read([f"{group}-{index}{tail}" for group in sorted(groups) for index, tail in ((0, ""), (1, "-r1"))])
    every = [GroupId("train", slot, group) for slot in range(10) for group in range(8)]
    assert {group for group in every if group in held} == groups


def test_evaluations_are_never_among_them() -> None:
    held = TrainGroups.of(2, [GroupId("train", 0, 0), GroupId("train", 0, 1)])
    assert held.holds("train-0-1-0") and not held.holds("eval-0-1-0") and GroupId("train", 0, 2) not in held


@pytest.mark.parametrize(
    "stored",
    [
        None,
        7,
        ["train-0-0-0", "nobody"],
        {"groups": []},
        {"groups_per_batch": 0, "groups": []},
        {"groups_per_batch": 2, "groups": [[3, 3]]},
    ],
)
def test_what_is_no_set_of_groups_is_refused(stored: object) -> None:
    with pytest.raises(ValueError, match="consumed groups"):
        TrainGroups.read(stored)
