"""Streamed Anthropic messages: blocks in order, keep-alives that change nothing, the same message as without streaming.

The official client puts the events together.
"""

import itertools
from typing import Any

import anthropic
import httpx2
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gyre_hpc.chat.base import Answer, ToolCall
from gyre_hpc.gateway.protocols.base import ChatRequest, Finished, Head, RequestError, Stream, Usage
from gyre_hpc.gateway.protocols.messages import Messages
from gyre_hpc.gateway.protocols.messages_thinking import carried
from tests.unit.gateway.test_messages import assistant, parse

HEAD = Head(call="train-0-0-0/3", created=1, model="m")
CALLS = (ToolCall(id="c0", name="Bash", arguments='{"command":"ls"}'), ToolCall(id="c1", name="Bash", arguments=""))


def finished(content: str = "", reasoning: str = "", calls: tuple[ToolCall, ...] = (), finish: str = "", stopped_by: str = "") -> Finished:
    answer = Answer(content=content, reasoning=reasoning, tool_calls=calls, stopped_by=stopped_by)
    usage = Usage(prompt_tokens=10, completion_tokens=5, cached_tokens=4)
    return Finished(answer=answer, finish=finish or ("tool_calls" if calls else "stop"), usage=usage)


def begun(**asked: Any) -> Stream:
    return Messages().stream(HEAD, parse(stream=True, **asked))


def put_together(data: bytes) -> anthropic.types.Message:
    """What the official client makes of these events."""

    def respond(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=data)

    with (
        httpx2.Client(transport=httpx2.MockTransport(respond)) as http,
        anthropic.Anthropic(api_key="k", base_url="http://gateway", http_client=http) as client,
        client.messages.stream(model="m", max_tokens=10, messages=[{"role": "user", "content": "hi"}]) as stream,
    ):
        return stream.get_final_message()


def events(data: bytes) -> list[tuple[str, ...]]:
    """(type, index and kind of block or delta, as far as an event has them)."""
    told = []
    for piece in data.split(b"\n\n")[:-1]:
        name, body = piece.split(b"\n")
        event = orjson.loads(body.removeprefix(b"data: "))
        assert name == b"event: " + event["type"].encode()
        inner = event.get("content_block") or event.get("delta") or {}
        told.append((event["type"], *(str(part) for part in (event.get("index"), inner.get("type")) if part is not None)))
    return told


def test_blocks_are_opened_filled_and_closed_in_order() -> None:
    stream = begun()
    data = stream.opening() + stream.reasoning("why") + stream.text("so") + stream.closing(finished("so be it", "why", CALLS[:1]))
    assert events(data) == [
        ("message_start",),
        ("content_block_start", "0", "thinking"),
        ("content_block_delta", "0", "thinking_delta"),
        ("content_block_delta", "0", "signature_delta"),
        ("content_block_stop", "0"),
        ("content_block_start", "1", "text"),
        ("content_block_delta", "1", "text_delta"),
        ("content_block_delta", "1", "text_delta"),
        ("content_block_stop", "1"),
        ("content_block_start", "2", "tool_use"),
        ("content_block_delta", "2", "input_json_delta"),
        ("content_block_stop", "2"),
        ("message_delta",),
        ("message_stop",),
    ]


@pytest.mark.parametrize("first", ["thinking", "tool_use"])
def test_an_empty_text_block_keeps_the_client_until_another_kind_begins(first: str) -> None:
    stream = begun()
    done = finished("", "why", CALLS[:1]) if first == "thinking" else finished("", "", CALLS[:1])
    data = stream.opening() + stream.keep_alive() + stream.keep_alive() + stream.closing(done)
    assert events(data)[1:6] == [
        ("content_block_start", "0", "text"),
        ("content_block_delta", "0", "text_delta"),
        ("content_block_delta", "0", "text_delta"),
        ("content_block_stop", "0"),
        ("content_block_start", "1", first),
    ]
    assert [block.type for block in put_together(data).content] == ["text", "thinking", "tool_use"][: 3 if first == "thinking" else 1] + (
        ["tool_use"] if first == "tool_use" else []
    )


def test_text_goes_on_in_the_block_of_the_keep_alives() -> None:
    stream = begun()
    data = stream.opening() + stream.keep_alive() + stream.text("a") + stream.keep_alive() + stream.closing(finished("ab"))
    assert {event[1] for event in events(data)[1:-2]} == {"0"}
    assert [block.to_dict() for block in put_together(data).content] == [{"type": "text", "text": "ab"}]


def test_thinking_that_is_left_out_is_in_the_signature() -> None:
    stream = begun(thinking={"type": "adaptive", "display": "omitted"})
    data = stream.opening() + stream.reasoning("be") + stream.keep_alive() + stream.closing(finished("so", "because"))
    assert b"because" not in data
    block = put_together(data).content[0]
    assert isinstance(block, anthropic.types.ThinkingBlock)
    assert (block.thinking, carried(block.signature)) == ("", "because")


def test_arguments_that_are_no_object_are_handed_over_and_come_back() -> None:
    """In a form that harnesses know and that no client stumbles over."""
    for raw in ('{"command":', '{"command":"x",}', "[1]", "<tool_call>x", '"'):
        broken = finished("", "", (ToolCall(id="c9", name="Bash", arguments=raw),))
        stream = begun()
        for told in (put_together(stream.opening() + stream.closing(broken)), _whole(parse(), broken)):
            assert _kept(told.content[0])["input"] == {"__unparsedToolInput": {"raw": raw, "len": len(raw)}}
            assert assistant(_kept(told.content[0])).tool_calls == broken.answer.tool_calls


def test_arguments_that_are_an_object_leave_as_the_model_wrote_them() -> None:
    call = ToolCall(id="c9", name="Bash", arguments='{"n": 1e2,  "s": "\\u00e9\\/"}')
    stream = begun()
    assert orjson.dumps({"type": "input_json_delta", "partial_json": call.arguments}) in stream.closing(finished("", "", (call,)))
    assert b'"input":' + call.arguments.encode() in Messages().whole(HEAD, parse(), finished("", "", (call,)))


@pytest.mark.parametrize(
    ("done", "reason", "sequence"),
    [
        (finished("a"), "end_turn", None),
        (finished("a", finish="length"), "max_tokens", None),
        (finished("a", calls=CALLS), "tool_use", None),
        (finished("a", stopped_by="END"), "stop_sequence", "END"),
    ],
)
def test_why_it_ended_and_what_it_cost(done: Finished, reason: str, sequence: str | None) -> None:
    stream = begun()
    for told in (put_together(stream.opening() + stream.closing(done)), _whole(parse(), done)):
        assert (told.stop_reason, told.stop_sequence) == (reason, sequence)
        assert (told.usage.input_tokens, told.usage.cache_read_input_tokens, told.usage.output_tokens) == (6, 4, 5)
        assert told.id == "msg_train-0-0-0-3"


def test_an_error_in_mid_stream_is_an_event() -> None:
    stream = begun()
    data = stream.opening() + stream.text("a") + stream.error(RequestError("the call got no answer", status=503))
    with pytest.raises(anthropic.APIStatusError, match="the call got no answer"):
        put_together(data)
    assert events(data)[-1] == ("error",)


_texts = st.text(alphabet="ab \n\u00e9\U0001f600", max_size=5)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(_texts, max_size=3),
    st.lists(_texts, max_size=3),
    st.integers(0, 3),
    st.integers(0, 3),
    st.lists(st.booleans(), min_size=8, max_size=8),
    st.booleans(),
    st.sampled_from([(), CALLS[:1], CALLS]),
)
def test_streamed_or_not_the_turn_is_the_same(
    thoughts: list[str], texts: list[str], told_thoughts: int, told_texts: int, alive: list[bool], shown: bool, calls: tuple[ToolCall, ...]
) -> None:
    """Whatever part of it was streamed, with keep-alives anywhere: sent back, both are the model's answer."""
    asked = parse(stream=True, thinking={"type": "adaptive"} if shown else {"type": "adaptive", "display": "omitted"})
    stream, beats = Messages().stream(HEAD, asked), itertools.cycle(alive)
    data = stream.opening()
    if told_texts:
        told_thoughts = len(thoughts)
    for say, pieces in ((stream.reasoning, thoughts[:told_thoughts]), (stream.text, texts[:told_texts])):
        for piece in pieces:
            data += (stream.keep_alive() if next(beats) else b"") + (say(piece) if piece else b"")
    done = finished("".join(texts), "".join(thoughts), calls)
    data += (stream.keep_alive() if next(beats) else b"") + stream.closing(done)
    streamed, whole = (assistant(*map(_kept, told.content)) for told in (put_together(data), _whole(asked, done)))
    assert streamed == whole
    assert (whole.content, whole.reasoning) == (done.answer.content, done.answer.reasoning)
    assert [call.id for call in whole.tool_calls] == [call.id for call in calls]


def _kept(block: anthropic.types.ContentBlock) -> dict[str, Any]:
    return block.to_dict()


def _whole(asked: ChatRequest, done: Finished) -> anthropic.types.Message:
    return anthropic.types.Message.model_validate_json(Messages().whole(HEAD, asked, done))
