"""A body that is put together is the one that would have been parsed, errors included, and no more is kept than allowed."""

import json
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.gateway.protocols import growing_body
from gyre_hpc.gateway.protocols.base import RequestError
from gyre_hpc.gateway.protocols.growing_body import GrowingBodies
from gyre_hpc.gateway.protocols.json_body import decode_object

DEEP = "[" * 1010 + "]" * 1010
ELEMENTS = [
    "7",
    "75",
    '"a"',
    '{"role":"user","content":"]}"}',
    '{"messages":[7]}',
    "[]",
    " 7 ",
    '"\\u0041"',
    '"\\ud83d"',
    "5e",
    "]",
    '"',
    DEEP,
]
HEADS = [
    '{"messages":[',
    '{"model":"m","messages" : [',
    '{"messages":[1],"messages":[',
    '{"x":{"messages":[',
    '{"messages":{"messages":[',
    "[",
]
TAILS = [
    "]}",
    '],"n":1}',
    '],"messages":[7]}',
    '],"m\\u0065ssages":["\\u0000what was there before\\u0000",3]}',
    "]}}",
    '],"a":"',
    "]} ",
    "]} x",
]
bodies = st.tuples(
    st.sampled_from(HEADS), st.lists(st.sampled_from(ELEMENTS), max_size=4), st.lists(st.sampled_from(TAILS), min_size=1, max_size=3)
)


def outcome(decode: Any, *given: Any) -> Any:
    try:
        return decode(*given)
    except RequestError as error:
        return error.text, error.code


@given(st.lists(st.tuples(st.sampled_from("ef"), bodies), max_size=6), st.integers(1, 300))
def test_bodies_are_those_of_a_first_parsing_whatever_came_before(asked: list[tuple[str, Any]], most_bytes: int) -> None:
    growing = GrowingBodies("messages", most_bytes, least_bytes=0)
    for execution, (head, elements, tails) in asked:
        # Every beginning of the list as well: conversations that grow.
        for num, tail in product(range(len(elements) + 1), tails):
            body = (head + ",".join(elements[:num]) + tail).encode()
            assert outcome(growing.decode, execution, body) == outcome(decode_object, body)
            assert growing._num_bytes == sum(len(one.prefix) for kept in growing._known.values() for one in kept) <= most_bytes


def test_only_what_is_new_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole: list[int] = []

    def watched(body: bytes) -> dict[str, Any]:
        whole.append(len(body))
        return decode_object(body)

    monkeypatch.setattr(growing_body, "decode_object", watched)
    growing, messages = GrowingBodies("messages", least_bytes=0), [{"role": "user", "content": "x" * 1000}]
    for turn in range(5):
        body = {"model": "m", "messages": messages, "max_tokens": turn}
        assert growing.decode("e", json.dumps(body).encode()) == body
        messages.append({"role": "user", "content": f"{turn}"})
    assert len(whole) == 1


@pytest.mark.parametrize("tail", ['],"messages":[7]}', '],"m\\u0065ssages":[7]}', '],"messages":7}', ",7]}", "] }", "]}]", "5]}", ""])
def test_what_only_looks_like_more_of_the_same_is_parsed_as_a_whole(tail: str) -> None:
    growing, first = GrowingBodies("messages", least_bytes=0), b'{"n":1,"messages":["a",75]}'
    assert growing.decode("e", first) == json.loads(first)
    body = first[:-2] + tail.encode()
    assert outcome(growing.decode, "e", body) == outcome(decode_object, body)


def test_nothing_is_kept_of_executions_that_ended_however_many_there_were() -> None:
    bodies = GrowingBodies("messages", least_bytes=0)
    for number in range(300):
        for body in (b'{"messages":[1,2]}', b'{"messages":["a"]}'):
            bodies.decode(f"e{number}", body)
        bodies.decode("lives", b'{"messages":[1]}')
        bodies.forget(f"e{number}")
    assert list(bodies._known) == ["lives"]
    bodies.forget("lives")
    assert (bodies._num_bytes, len(bodies._known)) == (0, 0)
