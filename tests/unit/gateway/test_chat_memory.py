"""Remembered messages are those that would be read anew, errors included, and no more is remembered than allowed."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.gateway.protocols import chat_memory
from gyre_hpc.gateway.protocols.base import RequestError
from gyre_hpc.gateway.protocols.chat_memory import ChatMemory
from gyre_hpc.gateway.protocols.chat_messages import read_messages

CALL = {"id": "a", "type": "function", "function": {"name": "shell", "arguments": "{}"}}
MESSAGES: list[Any] = [
    {"role": "system", "content": "rules"},
    {"role": "user", "content": "one"},
    {"role": "user", "content": [{"type": "text", "text": "one"}]},
    {"role": "assistant", "content": "two", "reasoning_content": "because"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "a", "content": "three"},
    {"role": "tool", "tool_call_id": "b", "content": "three"},
    {"role": "wizard", "content": "three"},
    7,
]


def outcome(read: Any) -> Any:
    try:
        return read()
    except RequestError as error:
        return error.field, error.text, error.code


@given(st.lists(st.tuples(st.sampled_from("ef"), st.lists(st.sampled_from(MESSAGES), max_size=6)), max_size=20), st.integers(1, 6000))
def test_messages_are_those_of_a_first_reading_whatever_came_before(asked: list[tuple[str, list[Any]]], most_chars: int) -> None:
    memory = ChatMemory(most_chars)
    for execution, raw in asked:
        anew = outcome(lambda raw=raw: read_messages(copy.deepcopy(raw)).turns)
        assert outcome(lambda e=execution, raw=raw: memory.messages(e, copy.deepcopy(raw))) == anew
        assert memory._num_chars == sum(size for branches in memory._known.values() for _, size in branches) <= most_chars


def test_only_what_is_new_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def watched(raw: Any, before: Any = None) -> Any:
        seen.append(len(raw) - (len(before.raw) if before is not None else 0))
        return read_messages(raw, before)

    monkeypatch.setattr(chat_memory, "read_messages", watched)
    memory = ChatMemory()
    for length in (2, 4, 6):
        memory.messages("e", copy.deepcopy(MESSAGES[:length]))
        memory.messages("e", [{"role": "user", "content": "a title"}])
    assert seen == [2, 1, 2, 0, 2, 0]


def test_nothing_is_remembered_of_executions_that_ended_however_many_there_were() -> None:
    memory = ChatMemory()
    for number in range(300):
        for raw in (MESSAGES[:2], MESSAGES[1:4]):
            memory.messages(f"e{number}", raw)
        memory.messages("lives", MESSAGES[:1])
        memory.forget(f"e{number}")
    assert list(memory._known) == ["lives"]
    memory.forget("lives")
    assert (memory._num_chars, len(memory._known)) == (0, 0)
