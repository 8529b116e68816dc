"""SLURM's short form of host names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.allocation.hostlist import compress, expand, natural
from gyre_hpc.errors import UserError


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("node[01-04,7]", ["node01", "node02", "node03", "node04", "node7"]),
        ("n[8-10]", ["n8", "n9", "n10"]),
        ("n[08-10]", ["n08", "n09", "n10"]),
        ("r[1-2]n[01-02],login", ["r1n01", "r1n02", "r2n01", "r2n02", "login"]),
        ("rack[1-2]-x", ["rack1-x", "rack2-x"]),
        ("a, b", ["a", "b"]),
    ],
)
def test_names_are_written_out_in_order(text: str, names: list[str]):
    assert list(expand(text, "--nodes")) == names


@pytest.mark.parametrize(
    "text", ["", ",", "n[1-2", "n1]", "n[[1]]", "n[]", "n[a-b]", "n[3-1]", "n[1-999999999999]", "n[1-60000]m[1-60000]", "a b", "n[1-2-3]"]
)
def test_what_is_no_list_is_refused_by_name(text: str):
    with pytest.raises(UserError, match="--nodes"):
        expand(text, "--nodes")


@given(st.lists(st.from_regex(r"[a-z]{1,3}[0-9]{0,3}(-[a-z])?", fullmatch=True), min_size=1, max_size=30))
def test_the_short_form_stands_for_the_same_names_in_the_same_order(names: list[str]):
    assert list(expand(compress(names), "names")) == names


@given(st.integers(0, 995), st.integers(1, 12), st.sampled_from(["", "-ib"]))
def test_consecutive_names_become_one_range(first: int, num: int, end: str):
    names = [f"n{number:03d}{end}" for number in range(first, min(first + num, 1000))]
    assert list(expand(compress(names), "names")) == names
    assert "," not in compress(names)


def test_names_are_ordered_as_people_count():
    assert sorted(["n10", "n2", "n1", "m"], key=natural) == ["m", "n1", "n2", "n10"]
