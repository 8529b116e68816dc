"""Chat Completions -> one request, and answers back: what real harnesses send, what is refused by name, what leaves as events."""

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gyre_hpc.chat.base import Answer, Message, ToolCall
from gyre_hpc.gateway.protocols.base import ChatRequest, Finished, Head, RequestError, TokenLogprob, Usage
from gyre_hpc.gateway.protocols.chat_completions import ChatCompletions

RECORDED: dict[str, dict[str, Any]] = orjson.loads((Path(__file__).parent / "chat_harness_requests.json").read_bytes())
USER = {"role": "user", "content": "hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
CALLED = [USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "c1", "content": "a"}]
TOOL = {"type": "function", "function": {"name": "bash", "description": "runs", "parameters": {"type": "object", "properties": {}}}}
HEAD = Head(call="train-0-0-0/3", created=1, model="m")
IMAGE = {"type": "image_url", "image_url": {"url": "x"}}


def parse(**change: Any) -> ChatRequest:
    return ChatCompletions().parse(orjson.dumps({"model": "m", "messages": [USER]} | change))


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_what_harnesses_send_is_taken(name: str) -> None:
    body = RECORDED[name]
    asked = ChatCompletions().parse(orjson.dumps(body))
    assert [message.role for message in asked.messages] == [message["role"] for message in body["messages"]]
    called = {call.id: call.name for message in asked.messages for call in message.tool_calls}
    for message in asked.messages:
        if message.role == "tool":
            assert message.name == called[message.tool_call_id]
    assert len(asked.tools) == len(body.get("tools", ()))
    assert asked.max_new_tokens == body.get("max_tokens", 0)


def test_parts_and_strings_are_the_same_turn() -> None:
    for message in (USER, *CALLED[2:], {"role": "system", "content": "a"}, {"role": "developer", "content": "a"}):
        parts = [{"type": "text", "text": message["content"], "cache_control": {"type": "ephemeral"}}]
        before = CALLED[:2] if message["role"] == "tool" else []
        assert parse(messages=[*before, message | {"content": parts}]).messages == parse(messages=[*before, message]).messages
    two = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    asked = parse(messages=[{"role": "user", "content": two}, {"role": "assistant", "content": two}])
    assert [message.content for message in asked.messages] == ["a\nb", "ab"]


def test_calls_and_reasoning_are_taken_verbatim() -> None:
    assistant = {"role": "assistant", "content": "", "reasoning_content": " why\n", "tool_calls": [CALL]}
    assert parse(messages=[USER, assistant, CALLED[2]]).messages[1:] == (
        Message(role="assistant", reasoning=" why\n", tool_calls=(ToolCall(id="c1", name="bash", arguments='{"command": "ls"}'),)),
        Message(role="tool", content="a", tool_call_id="c1", name="bash"),
    )


def test_what_does_not_change_the_answer_is_no_part_of_a_calls_identity() -> None:
    plain = parse(tools=[TOOL])
    assert plain.identity == parse(tools=[TOOL], user="u", metadata={"a": "b"}, store=True, stream=True, prompt_cache_key="k").identity
    for change in ({"temperature": 0.5}, {"max_tokens": 3}, {"stop": "x"}, {"tools": []}):
        assert plain.identity != parse(**({"tools": [TOOL]} | change)).identity


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"n": 2}, "n"),
        ({"top_logprobs": 3, "logprobs": True}, "top_logprobs"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"functions": [{"name": "x"}]}, "functions"),
        ({"modalities": ["audio"]}, "modalities"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "bash"}}}, "tool_choice"),
        ({"parallel_tool_calls": False}, "parallel_tool_calls"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": -1}, "max_completion_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"stop": ["x"] * 33}, "stop"),
        ({"stop": [1]}, "stop[0]"),
        ({"logprobs": 1}, "logprobs"),
        ({"stream_options": []}, "stream_options"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": ["hi"]}, "messages[0]"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}, IMAGE]}]}, "messages[0].content[1]"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [USER | {"tool_calls": [CALL]}]}, "messages[0].tool_calls"),
        ({"messages": [USER, {"role": "assistant", "tool_calls": [CALL, CALL]}]}, "messages[1].tool_calls[1].id"),
        ({"messages": [USER, {"role": "assistant", "tool_calls": {"0": CALL}}]}, "messages[1].tool_calls"),
        ({"messages": [USER, {"role": "assistant", "tool_calls": [CALL | {"type": "custom"}]}]}, "messages[1].tool_calls[0].type"),
        ({"messages": [USER, {"role": "assistant", "tool_calls": [{"id": "c"}]}]}, "messages[1].tool_calls[0].function"),
        (
            {"messages": [USER, {"role": "assistant", "tool_calls": [CALL | {"function": {"name": "b", "arguments": {}}}]}]},
            "messages[1].tool_calls[0].function.arguments",
        ),
        ({"messages": [USER, {"role": "assistant", "function_call": {"name": "b"}}]}, "messages[1].function_call"),
        ({"messages": [USER, {"role": "tool", "content": "x"}]}, "messages[1].tool_call_id"),
        ({"messages": [USER, CALLED[2], CALLED[1]]}, "messages[1].tool_call_id"),
        ({"tools": [{"type": "retrieval"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [TOOL, {"type": "function", "function": {"name": ""}}]}, "tools[1].function.name"),
        (
            {"tools": [{"type": "function", "function": {"name": "x", "parameters": {"properties": 3}}}]},
            "tools[0].function.parameters.properties",
        ),
        ({"tools": "all"}, "tools"),
    ],
)
def test_what_we_cannot_honour_is_refused_by_its_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestError) as raised:
        parse(**change)
    error = orjson.loads(ChatCompletions().error(raised.value))["error"]
    assert (raised.value.status, error["param"], error["type"]) == (400, field, "invalid_request_error")
    assert field in error["message"]


def test_limits_are_read() -> None:
    asked = parse(stop="END", max_tokens=5, max_completion_tokens=7, temperature=0, seed=3, logprobs=True, tool_choice="none", tools=[TOOL])
    assert (asked.stop, asked.max_new_tokens, asked.requested, asked.logprobs) == (("END",), 7, {"temperature": 0, "seed": 3}, True)
    assert asked.tools == ()
    assert parse(stop=["a", "", "b"]).stop == ("a", "b")


def test_an_answer_streamed_in_pieces_is_the_answer() -> None:
    answer = Answer(content="so be it", reasoning="because", tool_calls=(ToolCall(id="c1", name="bash", arguments="{}"),))
    logprobs = (TokenLogprob(text="so", raw=b"so", logprob=-0.5),)
    done = Finished(
        answer=answer, finish="tool_calls", usage=Usage(prompt_tokens=5, completion_tokens=3, cached_tokens=2), logprobs=logprobs
    )
    asked = parse(stream=True, stream_options={"include_usage": True}, logprobs=True)
    stream = ChatCompletions().stream(HEAD, asked)
    data = stream.opening() + stream.reasoning("be") + stream.keep_alive() + stream.text("so") + stream.closing(done)
    assert data.endswith(b"data: [DONE]\n\n")
    chunks = [orjson.loads(line[6:]) for line in data.split(b"\n\n")[:-2]]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    whole = orjson.loads(ChatCompletions().whole(HEAD, asked, done))
    message = whole["choices"][0]["message"]
    for name in ("reasoning_content", "content"):
        assert "".join(delta.get(name, "") for delta in deltas) == message[name]
    assert deltas[-2]["tool_calls"] == [{"index": 0} | message["tool_calls"][0]]
    assert chunks[-2]["choices"][0]["logprobs"] == whole["choices"][0]["logprobs"]
    assert chunks[-1]["usage"] == whole["usage"] == {
        "prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8, "prompt_tokens_details": {"cached_tokens": 2}
    }  # fmt: skip
    assert {chunk["id"] for chunk in chunks} == {whole["id"]} == {"chatcmpl-train-0-0-0-3"}


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_call = st.fixed_dictionaries({"id": st.sampled_from(["c1", "c2"]), "function": st.fixed_dictionaries({"name": _json, "arguments": _json})})
_message = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system", "tool"]) | _json},
    optional={"content": _json, "tool_calls": st.lists(_call | _json, max_size=2), "tool_call_id": st.just("c1") | _json},
)
_names = ("tools", "n", "stop", "stream_options", "max_tokens", "seed", "tool_choice", "response_format", "model", "logprobs")
_body = st.fixed_dictionaries({"messages": st.lists(_message, max_size=4) | _json}, optional={name: _json for name in _names})


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=40) | _body.map(orjson.dumps))
def test_whatever_is_sent_is_a_request_or_refused(body: bytes) -> None:
    try:
        asked = ChatCompletions().parse(body)
    except RequestError as error:
        assert error.status == 400
        return
    assert all(isinstance(text, str) for turn in asked.messages for text in (turn.role, turn.content, turn.tool_call_id))
