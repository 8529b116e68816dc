"""Remembered digests are those that would be made anew, and no more is remembered than allowed."""

from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.chat.base import Message, ToolCall
from gyre_hpc.gateway import turn_memory
from gyre_hpc.gateway.turn_memory import TurnMemory
from gyre_hpc.machines.call.turns import digest_turns

MESSAGES = [
    Message(role="user", content="one"),
    Message(role="user", content="two"),
    Message(role="assistant", content="one"),
    Message(role="assistant", content="one", reasoning="because"),
    Message(role="assistant", tool_calls=(ToolCall(name="shell", arguments="{}", id="a"),)),
    Message(role="assistant", tool_calls=(ToolCall(name="shell", arguments="{ }", id="a"),)),
    Message(role="tool", content="one", tool_call_id="a"),
]
conversations = st.lists(st.sampled_from(MESSAGES), max_size=6)


@given(st.lists(st.tuples(st.sampled_from(["e", "f"]), st.sampled_from(["main", "sub"]), conversations), max_size=20), st.integers(1, 4000))
def test_turns_are_those_of_digest_turns_whatever_came_before(asked: list[tuple[str, str, list[Message]]], most_chars: int) -> None:
    memory = TurnMemory(most_chars)
    for execution, thread, messages in asked:
        digested = memory.digested(execution, thread, messages)
        assert digested == TurnMemory().digested("", "", messages) and digested.turns == digest_turns(messages)
        kept = [known for branches in memory._known.values() for known in branches]
        assert memory._num_chars == sum(known.num_chars for known in kept) <= most_chars


def test_only_what_is_new_is_digested() -> None:
    seen: list[int] = []

    def watched(messages: object, canonical: object) -> object:
        seen.append(len(messages))  # type: ignore[arg-type]
        return digest_turns(messages)  # type: ignore[arg-type]

    original, turn_memory.digest_turns = turn_memory.digest_turns, watched  # type: ignore[assignment]
    try:
        memory = TurnMemory()
        for length in (1, 3, 5, 7):
            memory.digested("e", "main", MESSAGES[:length])
            memory.digested("e", "main", [Message(role="user", content="a title"), MESSAGES[0]])
    finally:
        turn_memory.digest_turns = original
    assert seen == [1, 2, 2, 0, 2, 0, 2, 0]


@given(conversations, conversations)
def test_different_conversations_have_different_digests(one: list[Message], other: list[Message]) -> None:
    memory = TurnMemory()
    first, second = (memory.digested("e", "main", messages).whole for messages in (one, other))
    assert (first == second) == (one == other)


def test_nothing_is_remembered_of_executions_that_ended_however_many_there_were() -> None:
    memory = TurnMemory()
    for number in range(300):
        for thread in ("main", "sub"):
            memory.digested(f"e{number}", thread, MESSAGES)
        memory.digested("lives", "main", MESSAGES[: 1 + number % 5])
        memory.forget(f"e{number}")
    assert set(memory._known) == {("lives", "main")} and set(memory._threads) == {"lives"}
    memory.forget("lives")
    assert (memory._num_chars, memory._known, memory._threads) == (0, {}, {})


def test_what_was_dropped_for_want_of_room_can_be_forgotten_too() -> None:
    memory = TurnMemory(most_chars=1000)
    for number in range(30):
        memory.digested(f"e{number}", "main", MESSAGES)
    assert set(memory._threads) == {execution for execution, _ in memory._known}
    for number in range(30):
        memory.forget(f"e{number}")
    assert (memory._num_chars, len(memory._known)) == (0, 0)
