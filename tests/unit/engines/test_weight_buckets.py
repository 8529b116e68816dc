"""Portions of weights: everything once, in order, bounded, and no more of them than needed."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.engines.sglang.weight_buckets import buckets

SIZES = st.lists(st.integers(0, 50), max_size=30).map(lambda sizes: {f"t{n}": size for n, size in enumerate(sizes)})


@given(sizes=SIZES, bound=st.integers(1, 60))
def test_every_tensor_is_in_one_portion_in_order(sizes: dict[str, int], bound: int) -> None:
    assert [name for portion in buckets(sizes, bound) for name in portion] == list(sizes)


@given(sizes=SIZES, bound=st.integers(1, 60))
def test_a_portion_is_bounded_unless_one_tensor_alone_is_larger(sizes: dict[str, int], bound: int) -> None:
    for portion in buckets(sizes, bound):
        assert len(portion) == 1 or sum(sizes[name] for name in portion) <= bound


@given(sizes=SIZES, bound=st.integers(1, 60))
def test_no_portion_had_room_for_the_next_tensor(sizes: dict[str, int], bound: int) -> None:
    portions = buckets(sizes, bound)
    for portion, following in itertools.pairwise(portions):
        assert sum(sizes[name] for name in portion) + sizes[following[0]] > bound


def test_a_bound_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="bound=0"):
        buckets({"t": 1}, 0)
