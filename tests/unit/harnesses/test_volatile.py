"""Texts of two processes that do the same are alike; others are not."""

import datetime
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.harnesses import create_harness
from gyre_hpc.harnesses.volatile import canonical_form

CANONICAL = canonical_form()
TIMES = st.datetimes(datetime.datetime(2020, 1, 1), datetime.datetime(2033, 1, 1))
FORMS = (
    "%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S.%fZ", "%A, %B %d, %Y", "%a %b %d %H:%M:%S UTC %Y",
    "%b %d %H:%M", "%H:%M:%S", "%d %B %Y", "%m/%d/%Y, %I:%M:%S %p", "%Y-%m-%d %H:%M:%S+00:00",
)  # fmt: skip


@given(st.sampled_from(FORMS), TIMES, TIMES)
def test_two_readings_of_a_clock_are_alike(form: str, one: datetime.datetime, other: datetime.datetime) -> None:
    assert CANONICAL(f"It is {one.strftime(form)}.") == CANONICAL(f"It is {other.strftime(form)}.")


@given(TIMES, TIMES)
def test_seconds_of_a_clock_are_alike(one: datetime.datetime, other: datetime.datetime) -> None:
    texts = [f"at {time.replace(tzinfo=datetime.UTC).timestamp():.3f} now" for time in (one, other)]
    assert CANONICAL(texts[0]) == CANONICAL(texts[1])


@given(st.uuids(), st.uuids())
def test_two_random_names_are_alike(one: uuid.UUID, other: uuid.UUID) -> None:
    assert CANONICAL(f"session {one} begins") == CANONICAL(f"session {other} begins")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("real 0m0.003s", "real 1m12.4s"),
        ("took 12.5ms", "took 3 ms"),
        ("/tmp/tmpab3_x9zq/out", "/tmp/tmpzzzzzzzz/out"),
        ("/tmp/tmp.aB3dEfGh", "/tmp/tmp.QqQqQqQq"),
        ("commit a1b2c3d4 is", "commit 9f8e7d6c is"),
        ("agentId: a1b2c3d4e5f60718", "agentId: 0b1c2d3e4f506172"),
        ("pid 1234 ends", "pid 9 ends"),
        ("http://127.0.0.1:43210/x", "http://127.0.0.1:8080/x"),
        ("<object at 0x7f3a12bc>", "<object at 0x55d01234>"),
    ],
)
def test_what_the_system_hands_out_is_alike(one: str, other: str) -> None:
    assert CANONICAL(one) == CANONICAL(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("3 passed, 1 failed", "4 passed"),
        ("error in main.py:12", "error in main.py:13"),
        ("result = 41", "result = 42"),
        ("exit code 1", "exit code 0"),
        ("version 2.0.1", "version 2.0.2"),
        ("facade", "decade"),
        ("total 12345678", "total 12345679"),
        ("It is late.", "It is early."),
        ("file a.txt", "file b.txt"),
    ],
)
def test_what_differs_in_anything_else_is_different(one: str, other: str) -> None:
    assert CANONICAL(one) != CANONICAL(other)


@given(st.text(max_size=200))
def test_a_text_is_as_alike_to_itself_whatever_is_in_it(text: str) -> None:
    assert CANONICAL(text) == CANONICAL(text)
    assert CANONICAL(text).count("\n") == text.count("\n")


def test_a_harness_adds_patterns_of_its_own() -> None:
    canonical = canonical_form((r"turn-[a-z]+",))
    assert canonical("turn-abc\nturn-xyz") == "<own>\n<own>"
    assert create_harness("shell_agent").canonical()("no pattern") == "no pattern"
