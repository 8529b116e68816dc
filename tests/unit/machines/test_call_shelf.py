"""What stored answers share is in the journal once, and every conversation is put together from it as it was."""

import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gyre_hpc.chat.base import Message, ToolCall
from gyre_hpc.machines.call.actions import Reply, Retrieve
from gyre_hpc.machines.call.shelf import SHORT, Shelf, pack_messages
from gyre_hpc.protocol.journal import Stored, encode
from tests.fakes.call_parts import row
from tests.fakes.call_world import CallWorld
from tests.unit.machines.test_call_stored import CALL, EXECUTION, a_world, ask, inquire, user

TOOLS = b"t" * 80_000
TURNS = st.builds(
    Message, role=st.sampled_from(["user", "tool"]), content=st.sampled_from(["", "a", "b\ud83d", "c"]), name=st.sampled_from(["", "n"])
)


def record(shelf: Shelf, messages: tuple[Message, ...], echo: tuple[bytes, ...] = ()) -> Stored:
    base, rest = shelf.split(pack_messages(messages))
    return Stored(CALL, rest, b"", base=base, echoes=shelf.echoed(echo))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.lists(TURNS, max_size=5).map(tuple), st.booleans()), max_size=8))
def test_conversations_come_back_whole_whatever_they_share(talks: list[tuple[tuple[Message, ...], bool]]) -> None:
    """Not every record becomes durable before the next one is made."""
    shelf, records = Shelf(), []
    for messages, is_late in talks:
        records.append(record(shelf, messages))
        if not is_late:
            shelf.take(records[-1])
    for one in records:
        shelf.take(one)
    again = Shelf()
    for one in records:
        again.take(one)
    for (messages, _), one in zip(talks, records, strict=True):
        plain = tuple(msgspec.msgpack.decode(packed, type=Message) for packed in pack_messages(messages))
        assert shelf.messages(one) == again.messages(one) == plain


def test_a_whole_conversation_with_every_request_costs_what_is_new() -> None:
    world, messages, sizes = CallWorld(max_context=1_000_000), list[Message](), list[int]()
    world.set_table(row(0))
    for place in range(12):
        messages += [
            user(f"{place}" * 1000),
            Message(role="assistant", content="", tool_calls=(ToolCall(name="f", arguments="{}", id=f"i{place}"),)),
        ]
        messages.append(Message(role="tool", content="x" * 1000, tool_call_id=f"i{place}"))
        ask(world, *messages)
        sizes.append(sum(len(encode(one)) for one in world.journal if isinstance(one, Stored)))
    steps = [after - before for before, after in itertools.pairwise(sizes)]
    assert max(steps) < 4000


@pytest.mark.parametrize("restart", [False, True])
def test_tools_of_a_client_are_written_once_and_given_back_with_every_answer(restart: bool) -> None:
    world = a_world()
    for place in range(4):
        ask(
            world,
            user("go"),
            tag=f"{place}",
            echo=(TOOLS, b"", f"{place}".encode(), b"i" * (SHORT + 1)),
            previous=f"{EXECUTION}/{place - 1}" if place else "",
        )
    assert sum(len(encode(one)) for one in world.journal) < len(TOOLS) + 20_000
    if restart:
        world.crash(0)
    for place in range(4):
        again = inquire(world, Retrieve, f"{EXECUTION}/{place}")
        assert isinstance(again, Reply) and again.echo == (TOOLS, b"", f"{place}".encode(), b"i" * (SHORT + 1))


def test_records_of_format_2_are_still_given_out() -> None:
    shelf = Shelf()
    old = Stored(CALL, msgspec.msgpack.encode((user("go"), user("on"))), b"", echo=b"{}")
    shelf.take(old)
    assert shelf.messages(old) == (user("go"), user("on"))
    assert shelf.echo(old) == (b"{}",)
    assert record(shelf, (user("go"), user("on"), user("further"))).base
    assert shelf.messages(Stored(CALL, b"", b"")) == ()


def test_a_record_that_goes_on_from_nothing_known_is_refused() -> None:
    with pytest.raises(KeyError, match="no earlier record"):
        Shelf().take(Stored(CALL, b"", b"", base=b"x" * 16))
