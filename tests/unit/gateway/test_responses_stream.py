"""Events of a streamed response: their order, their numbers, and that they add up to the response that is not streamed."""

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.chat.base import Answer, ToolCall
from gyre_hpc.gateway.protocols.base import Finished, Head, RequestError, TokenLogprob, Usage
from gyre_hpc.gateway.protocols.responses import Responses
from gyre_hpc.gateway.protocols.responses_stream import ResponseStream

EXECUTION = "train-0-0-0"
PROTOCOL = Responses("secret")
HEAD = Head(call=f"{EXECUTION}/4", created=9, model="m")
USAGE = Usage(prompt_tokens=10, completion_tokens=4, cached_tokens=6)
CALLS = (
    ToolCall(id="call_train-0-0-0_4_0", name="shell", arguments='{"command":"ls"}'),
    ToolCall(id="call_train-0-0-0_4_1", name="patch", arguments='{"input":"x"}'),
)
BODY = orjson.dumps(
    {
        "input": "hi",
        "tools": [{"type": "function", "name": "shell"}, {"type": "custom", "name": "patch"}],
        "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
    }
)


def begun(body: bytes = BODY) -> ResponseStream:
    return PROTOCOL.stream(HEAD, PROTOCOL.parse_for(EXECUTION, body))


def whole(finished: Finished) -> dict[str, Any]:
    body: dict[str, Any] = orjson.loads(PROTOCOL.whole(HEAD, PROTOCOL.parse_for(EXECUTION, BODY), finished))
    return body


def events(data: bytes) -> list[dict[str, Any]]:
    read = []
    for block in data.split(b"\n\n")[:-1]:
        name, _, value = block.partition(b"\n")
        event = orjson.loads(value.removeprefix(b"data: "))
        assert name.decode() == f"event: {event['type']}"
        read.append(event)
    assert [event["sequence_number"] for event in read] == list(range(len(read)))
    return read


def kinds(read: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in read]


def test_the_order_of_events() -> None:
    stream = begun()
    data = stream.opening() + stream.reasoning("th") + stream.keep_alive() + stream.reasoning("ink") + stream.text("Hel")
    answer = Answer(content="Hello", reasoning="think", tool_calls=CALLS)
    data += stream.closing(Finished(answer=answer, finish="tool_calls", usage=USAGE))
    assert kinds(events(data)) == [
        "created", "in_progress",
        "output_item.added", "content_part.added", "reasoning_text.delta", "in_progress", "reasoning_text.delta",
        "reasoning_text.done", "content_part.done", "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta", "output_text.delta",
        "output_text.done", "content_part.done", "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done",
        "output_item.added", "custom_tool_call_input.delta", "custom_tool_call_input.done", "output_item.done",
        "completed",
    ]  # fmt: skip


def test_a_keep_alive_is_the_response_in_progress_once_more() -> None:
    stream = begun()
    read = events(stream.opening() + stream.keep_alive() + stream.keep_alive())
    assert kinds(read) == ["created", "in_progress", "in_progress", "in_progress"]
    assert read[1]["response"] == read[3]["response"]
    assert (read[0]["response"]["status"], read[0]["response"]["output"]) == ("in_progress", [])


@given(
    st.text(max_size=8),
    st.text(max_size=8),
    st.integers(0, 2),
    st.sampled_from(["stop", "length"]),
    st.integers(0, 8),
    st.integers(0, 8),
)
def test_events_add_up_to_the_response_that_is_not_streamed(
    reasoning: str, text: str, num_calls: int, finish: str, told: int, shown: int
) -> None:
    """However much of it was said before the end."""
    logprobs = (TokenLogprob(text="a", raw=b"a", logprob=-0.5),)
    finished = Finished(
        answer=Answer(content=text, reasoning=reasoning, tool_calls=CALLS[:num_calls]), finish=finish, usage=USAGE, logprobs=logprobs
    )
    stream = begun()
    data = stream.opening()
    if reasoning[:told]:
        data += stream.reasoning(reasoning[:told])
    if text[:shown] and told >= len(reasoning):
        data += stream.text(text[:shown])
    read = events(data + stream.closing(finished))
    expected = whole(finished)
    assert read[-1]["response"] == expected
    assert [event["item"] for event in read if event["type"] == "response.output_item.done"] == expected["output"]
    assert [event["output_index"] for event in read if event["type"] == "response.output_item.added"] == list(
        range(len(expected["output"]))
    )
    assert "".join(event["delta"] for event in read if event["type"] == "response.output_text.delta") == text
    assert "".join(event["delta"] for event in read if event["type"] == "response.reasoning_text.delta") == reasoning


def test_an_answer_that_was_cut_is_incomplete() -> None:
    stream = begun()
    read = events(stream.opening() + stream.closing(Finished(answer=Answer(content="Hel"), finish="length", usage=USAGE)))
    last = read[-1]
    assert last["type"] == "response.incomplete"
    assert (last["response"]["status"], last["response"]["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert last["response"]["output"][0]["status"] == "incomplete"


def test_an_answer_of_nothing_is_an_empty_message() -> None:
    output = whole(Finished(answer=Answer(content=""), finish="stop", usage=USAGE))["output"]
    assert [(item["type"], item["content"][0]["text"]) for item in output] == [("message", "")]


def test_calls_without_words_have_no_message() -> None:
    output = whole(Finished(answer=Answer(content="", tool_calls=CALLS), finish="tool_calls", usage=USAGE))["output"]
    assert [item["type"] for item in output] == ["function_call", "custom_tool_call"]


def test_an_error_in_the_stream_is_a_failed_response_and_the_end() -> None:
    stream = begun()
    read = events(stream.opening() + stream.text("Hel") + stream.error(RequestError("train-0-0-0/4 was cancelled", code="cancelled")))
    assert kinds(read)[-1] == "failed"
    assert read[-1]["response"]["status"] == "failed"
    assert read[-1]["response"]["error"] == {"code": "cancelled", "message": "Response 'resp_train-0-0-0_4' was cancelled."}


def test_usage_says_what_was_cached() -> None:
    usage = whole(Finished(answer=Answer(content="x"), finish="stop", usage=USAGE))["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (10, 4, 14)
    assert usage["input_tokens_details"] == {"cached_tokens": 6}


def test_a_stored_answer_repeats_its_own_request() -> None:
    asked = PROTOCOL.parse_for(EXECUTION, orjson.dumps({"input": "hi", "model": "m7", "metadata": {"a": "b"}, "instructions": "be brief"}))
    finished = Finished(answer=Answer(content="x"), finish="stop", usage=USAGE, echo=asked.echo, previous="train-0-0-0/2", created=5)
    body = orjson.loads(PROTOCOL.whole(HEAD, PROTOCOL.parse_for(EXECUTION, b'{"input": "fetch"}'), finished))
    assert (body["model"], body["metadata"], body["instructions"]) == ("m7", {"a": "b"}, "be brief")
    assert (body["previous_response_id"], body["created_at"]) == ("resp_train-0-0-0_2", 5)
