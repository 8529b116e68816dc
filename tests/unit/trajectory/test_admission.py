"""Trees of calls, and which of their paths are trained on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.trajectory.admission import ROLES, admit
from gyre_hpc.trajectory.base import Call
from gyre_hpc.trajectory.tree import CallTree
from tests.unit.trajectory.random_trees import EXECUTION, drawn_calls, make_call


def names(*ordinals: int) -> tuple[str, ...]:
    return tuple(f"{EXECUTION}/{ordinal}" for ordinal in ordinals)


@given(drawn_calls())
def test_the_full_ids_of_a_call_are_its_parents_then_its_suffix_and_output(calls: list[Call]) -> None:
    tree = CallTree(calls)
    for call in calls:
        before = tree.full_ids(call.parent).tolist() if call.parent else []
        assert tree.context(call.id).tolist() == before + call.suffix_ids.tolist()
        assert tree.full_ids(call.id).tolist() == before + call.suffix_ids.tolist() + call.output_ids.tolist()


@given(drawn_calls())
def test_leaves_are_delivered_calls_that_no_delivered_call_builds_on(calls: list[Call]) -> None:
    tree = CallTree(calls)
    for call in calls:
        followers = [other for other in calls if other.delivered and call.id in tree.path(other.id)[:-1]]
        assert (call.id in tree.leaves) == (call.delivered and not followers)


@given(drawn_calls(), st.integers(1, 6))
def test_at_most_j_max_paths_are_admitted_and_each_adds_targets(calls: list[Call], j_max: int) -> None:
    tree = CallTree(calls)
    admission = admit(tree, j_max)
    assert len(admission.trajectories) <= j_max
    admitted = {call for one in admission.trajectories for call in one.calls}
    assert admission.num_targets == sum(tree.num_targets(call) for call in admitted)
    assert all(one.num_new_targets > 0 for one in admission.trajectories)
    ranks = [ROLES.index(one.role) for one in admission.trajectories]
    assert ranks == sorted(ranks)


@given(drawn_calls())
def test_with_room_for_all_every_target_is_admitted(calls: list[Call]) -> None:
    tree = CallTree(calls)
    assert admit(tree, 99).num_targets == sum(tree.num_targets(call.id) for call in calls)


def test_role_goes_before_size_and_size_before_arrival() -> None:
    calls = [
        make_call(0, None, output=1),
        make_call(1, 0, output=2),
        make_call(2, 0, output=5),
        make_call(3, 0, output=2),
        make_call(4, None, output=50, role="sub_agent"),
    ]
    admission = admit(CallTree(calls), 4)
    assert [one.leaf for one in admission.trajectories] == [*names(2, 3, 1), *names(4)]
    assert [one.num_new_targets for one in admission.trajectories] == [6, 2, 2, 50]
    assert [one.num_targets for one in admission.trajectories] == [6, 3, 3, 50]


def test_what_an_admitted_path_already_holds_does_not_count_again() -> None:
    calls = [
        make_call(0, None, output=90),
        make_call(1, 0, output=3),
        make_call(2, 0, output=2),
        make_call(3, None, output=40),
    ]
    admission = admit(CallTree(calls), 2)
    assert [one.leaf for one in admission.trajectories] == list(names(1, 3))


def test_a_repeated_call_that_was_never_delivered_is_not_trained_on() -> None:
    """Fault A11: the harness timed out, asked again and went on from the second answer."""
    calls = [make_call(0, None), make_call(1, 0, delivered=False), make_call(2, 0), make_call(3, 2)]
    tree = CallTree(calls)
    assert tree.leaves == names(3)
    assert not tree.is_branching
    assert admit(tree, 5).num_targets == 9


def test_equal_tokens_of_two_calls_are_two_nodes() -> None:
    first, second = make_call(0, None), make_call(1, None)
    object.__setattr__(second, "output_ids", first.output_ids)
    object.__setattr__(second, "suffix_ids", first.suffix_ids)
    assert admit(CallTree([first, second]), 5).num_targets == 6


def test_a_missing_parent_is_refused() -> None:
    with pytest.raises(ValueError, match="no earlier finished call"):
        CallTree([make_call(1, 0)])


def test_an_unknown_role_is_refused() -> None:
    with pytest.raises(ValueError, match="'boss'"):
        admit(CallTree([make_call(0, None, role="boss")]), 5)
