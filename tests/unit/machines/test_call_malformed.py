"""Tool calls that cannot be parsed (A8): kept with their span, given to the agent as calls that fail, counted."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from gyre_hpc.chat.base import Answer, Malformed, Reader, ToolCall
from gyre_hpc.chat.drill import DrillFormat
from gyre_hpc.chat.parsers.qwen3_coder import Qwen3Coder
from gyre_hpc.chat.reader import StreamReader
from gyre_hpc.machines.call.minted import NAME, as_tool_call
from gyre_hpc.protocol.journal import CallEnd
from tests.fakes.call_parts import FORMAT, STOP, Client, row
from tests.fakes.call_world import CallWorld

EXECUTION = "train-0-0-0"
GOOD = '<tool_call>{"name":"shell","arguments":{"command":"ls"}}</tool_call>'
BAD = '<tool_call>{"name":"shell","arguments":{"command":}</tool_call>'


class XmlParser(DrillFormat):
    """The wrong parser: the model writes JSON, this one reads XML."""

    def reader(self, *, stop: Sequence[str] = (), tools: Sequence[dict[str, Any]] = ()) -> Reader:
        options = {"stop_ids": self.stop_ids, "thinks": False, "thinking_begun": False}
        return StreamReader(self.tokenizer.stream(), Qwen3Coder(), stop=stop, tools=tools, **options)


class OneOfEach(DrillFormat):
    """Whatever is written holds one call that can be parsed and one that cannot."""

    def parse(self, ids: Sequence[int], *, stop: Sequence[str] = (), partial: bool = False, tools: Sequence[dict[str, Any]] = ()) -> Answer:
        bad = Malformed(raw="<tool_call>", start=0, end=len(ids), reason="no end")
        return Answer(content="", tool_calls=(ToolCall(name="shell", arguments="{}"),), malformed=(bad,))


def answered(*texts: str, turns: int = 1) -> tuple[CallWorld, Client]:
    """A world in which an agent was given these answers."""
    world, client = CallWorld(max_output_tokens=200), Client(EXECUTION, "main", turns, False)
    world.scripts = {f"{EXECUTION}/{place}": [*FORMAT.tokenizer.encode(text), STOP] for place, text in enumerate(texts)}
    world.clients.append(client)
    world.set_table(row(0))
    world.settle()
    return world, client


def test_a_tool_that_can_be_read_is_named_with_what_was_written() -> None:
    call = as_tool_call(Malformed(raw='<tool_call>{"name": "shell", x', start=0, end=3, reason="no JSON", name="shell"))
    assert (call.name, call.arguments) == ("shell", '<tool_call>{"name": "shell", x')


@pytest.mark.parametrize("name", ["", "shell"])
def test_nothing_malformed_can_be_carried_out_by_a_harness(name: str) -> None:
    """What happens to be an object would be taken for the arguments."""
    call = as_tool_call(Malformed(raw='{"command": "rm"}', start=0, end=3, reason="no marks", name=name))
    assert call.name == NAME
    assert json.loads(call.arguments) == {"error": "no marks", "raw": '{"command": "rm"}'}


def test_a_malformed_call_reaches_the_agent_and_its_answer_goes_on_from_the_same_tokens() -> None:
    world, client = answered("Hm. " + BAD, "done", turns=2)
    (call,) = client.replies[0].answer.tool_calls
    assert (client.replies[0].finish, client.answers[0], call.id) == ("tool_calls", "Hm. ", f"call_{EXECUTION}_0_0")
    first = next(record for record in world.journal if isinstance(record, CallEnd))
    ((start, end),) = first.malformed_spans
    assert FORMAT.tokenizer.decode(world.output(first.call)[start:end]) == BAD
    assert (first.malformed, first.tool_calls) == (1, (call.id,))
    assert world.begins()[f"{EXECUTION}/1"].parent == first.call


def test_good_calls_come_first_and_both_are_counted_also_after_a_restart() -> None:
    world, client = CallWorld(), Client(EXECUTION, "main", 1, False)
    world.format = OneOfEach()
    world.clients.append(client)
    world.set_table(row(0))
    world.settle()
    calls = client.replies[0].answer.tool_calls
    assert [(call.name, call.id[-2:]) for call in calls] == [("shell", "_0"), (NAME, "_1")]
    assert (world.shard.tokens["tool_calls"], world.shard.tokens["tool_calls_malformed"]) == (1, 1)
    world.crash(0)
    assert (world.shard.tokens["tool_calls"], world.shard.tokens["tool_calls_malformed"]) == (1, 1)


def test_with_the_wrong_parser_every_call_is_malformed_and_none_is_lost() -> None:
    world, client = CallWorld(max_output_tokens=200), Client(EXECUTION, "main", 5, True)
    world.format = XmlParser()
    world.scripts = {f"{EXECUTION}/{place}": [*FORMAT.tokenizer.encode(GOOD), STOP] for place in range(5)}
    world.clients.append(client)
    world.set_table(row(0))
    world.settle()
    assert len(client.replies) == 5
    assert all(len(reply.answer.tool_calls) == len(reply.answer.malformed) == 1 for reply in client.replies)
    assert (world.shard.tokens["tool_calls"], world.shard.tokens["tool_calls_malformed"]) == (0, 5)
