"""Partials merge to what the whole would have given."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.observability.metrics import Max, Mean, Sum, merged

numbers = st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(0.1, 100)), min_size=1, max_size=20)


@given(numbers, st.integers(0, 20))
def test_a_mean_of_parts_is_the_mean_of_the_whole(values: list[tuple[float, float]], cut: int):
    parts = [values[:cut], values[cut:]]
    partials = []
    for part in parts:
        partial = Mean()
        for value, weight in part:
            partial = partial.merge(Mean.of(value, weight))
        partials.append(partial)
    whole = sum(value * weight for value, weight in values) / sum(weight for _, weight in values)
    assert partials[0].merge(partials[1]).value == pytest.approx(whole, abs=1e-6)


def test_a_mean_of_means_would_have_been_wrong():
    assert Mean.of(1.0, 9).merge(Mean.of(0.0, 1)).value == pytest.approx(0.9)


def test_nothing_seen_is_not_zero():
    assert math.isnan(Mean().value) and math.isnan(Max().value)
    assert Sum().value == 0


def test_parts_of_many_processes_merge_by_name():
    result = merged(
        [{"loss": Mean.of(1.0), "gap": Max(0.1)}, {"gap": Max(0.3), "tokens": Sum(5)}, {"tokens": Sum(2), "loss": Mean.of(3.0)}]
    )
    assert {name: partial.value for name, partial in result.items()} == {"loss": 2.0, "gap": 0.3, "tokens": 7}


def test_one_name_has_one_type():
    with pytest.raises(TypeError, match="loss"):
        merged([{"loss": Mean.of(1.0)}, {"loss": Sum(1.0)}])
