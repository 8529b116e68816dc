"""Anthropic Messages: what is refused, by the name of its field and in Anthropic's words; and no bytes are our error."""

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gyre_hpc.gateway.protocols.base import RequestError
from gyre_hpc.gateway.protocols.messages import Messages
from tests.fakes.gateway_world import FORMAT
from tests.unit.gateway.test_messages import CALL, CALLED, LATER, RESULT, TOOL, USER, parse

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"max_tokens": ...}, "max_tokens: Field required"),
        ({"max_tokens": 0}, "max_tokens: Input should be greater than or equal to 1"),
        ({"max_tokens": "many"}, "max_tokens: Expected `int | null`, got `str`"),
        ({"messages": ...}, "messages: Field required"),
        ({"messages": []}, "messages: at least one message is required"),
        ({"messages": "hi"}, "messages: Input should be a valid list"),
        ({"messages": ["hi"]}, "messages.0: Input should be an object"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages.0.role: Input should be"),
        ({"messages": [{"role": ["user"], "content": "x"}]}, "messages.0.role: Input should be"),
        ({"messages": [{"role": "user"}]}, "messages.0.content: Field required"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages.0.content: Input should be a string or a list of blocks"),
        ({"messages": [USER, {"role": "assistant", "content": "so"}]}, "messages: assistant message prefill is not supported"),
        ({"messages": [{"role": "user", "content": [IMAGE]}]}, "messages.0.content.0.type: blocks of type 'image'"),
        ({"messages": [{"role": "user", "content": [{"type": "document"}]}]}, "messages.0.content.0.type: blocks of type 'document'"),
        ({"messages": [{"role": "user", "content": [CALL]}]}, "messages.0.content.0.type: blocks of type 'tool_use'"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "messages.0.content.0: Input should be an object"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages.0.content.0.text: Field required"),
        ({"messages": [{"role": "user", "content": [RESULT]}]}, "messages.0.content.0: unexpected `tool_use_id` found"),
        (
            {"messages": [*CALLED[:2], {"role": "user", "content": [RESULT | {"content": [{"type": "text", "text": "x"}, IMAGE]}]}]},
            "messages.2.content.0.content.1.type: blocks of type 'image'",
        ),
        (
            {"messages": [USER, {"role": "assistant", "content": [CALL, CALL]}, USER]},
            "messages.1.content.1.id: `tool_use` ids must be unique",
        ),
        (
            {"messages": [USER, {"role": "assistant", "content": [CALL | {"input": "{}"}]}, USER]},
            "messages.1.content.0.input: Input should",
        ),
        (
            {"messages": [USER, {"role": "assistant", "content": [{"type": "server_tool_use"}]}, USER]},
            "messages.1.content.0.type: blocks of",
        ),
        ({"system": [IMAGE]}, "system.0.type: blocks of type 'image'"),
        ({"system": 3}, "system: Input should be a string"),
        (
            {"system": [{"type": "tool_addition", "tool": {"type": "tool_reference", "name": "Later"}}]},
            "system.0.tool.name: Tool reference",
        ),
        ({"system": [{"type": "tool_addition", "tool": {"type": "mcp_tool_reference"}}]}, "system.0.tool.type: 'mcp_tool_reference'"),
        ({"system": [{"type": "tool_addition", "tool": {"type": "tool_definition"}}]}, "system.0.tool.definition: Field required"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools.0.type: 'web_search_20250305': tools that run on"),
        ({"tools": [TOOL, {"name": "x"}]}, "tools.1.input_schema: Field required"),
        ({"tools": [TOOL | {"name": ""}]}, "tools.0.name: Input should be a valid string"),
        ({"tools": [TOOL | {"input_schema": {"properties": []}}]}, "tools.0.input_schema.properties: Input should be an object"),
        ({"tools": {"a": LATER}}, "tools: Input should be a valid list"),
        ({"tool_choice": {"type": "any"}}, "tool_choice.type: not supported here"),
        ({"tool_choice": {"type": "tool", "name": "x"}}, "tool_choice.type: not supported here"),
        ({"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}, "tool_choice.disable_parallel_tool_use: not supported here"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {}}}}, "output_config.format: not supported here"),
        ({"output_format": {"type": "json_schema"}}, "output_format: not supported here"),
        ({"mcp_servers": [{"type": "url"}]}, "mcp_servers: not supported here"),
        ({"container": "c"}, "container: not supported here"),
        ({"thinking": {"type": "sometimes"}}, "thinking.type: not supported here"),
        ({"stop_sequences": [" "]}, "stop_sequences.0: each stop sequence must contain non-whitespace"),
        ({"stop_sequences": ["x"] * 33}, "stop_sequences: Expected `array` of length <= 32"),
        ({"stream": "yes"}, "stream: Expected `bool | null`, got `str`"),
    ],
)
def test_what_we_cannot_honour_is_refused_by_its_field(change: dict[str, Any], error: str) -> None:
    with pytest.raises(RequestError) as raised:
        parse(**change)
    told = orjson.loads(Messages().error(raised.value))
    assert told["type"] == "error"
    assert told["error"]["type"] == "invalid_request_error"
    assert told["error"]["message"].startswith(error)
    assert raised.value.field == error.partition(":")[0]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (503, "overloaded_error"),
        (529, "overloaded_error"),
        (418, "invalid_request_error"),
    ],
)
def test_an_error_has_the_kind_of_its_status(status: int, kind: str) -> None:
    assert orjson.loads(Messages().error(RequestError("x: y", status=status)))["error"] == {"type": kind, "message": "x: y"}


def test_a_prompt_that_is_too_long_is_told_in_the_wording_on_which_harnesses_compact() -> None:
    error = RequestError("whatever", code="context_length_exceeded", facts={"tokens": 210000, "limit": 200000})
    assert orjson.loads(Messages().error(error))["error"]["message"] == "prompt is too long: 210000 tokens > 200000 maximum"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"messages":', b"\xff", b"[" * 5000, b'{"a":"\\ud800"'])
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(RequestError, match=r"^body") as raised:
        Messages().parse(body)
    assert (raised.value.status, raised.value.code) == (400, "invalid_json")


def test_half_an_emoji_becomes_a_replacement_character_and_nul_stays() -> None:
    body = b'{"max_tokens":5,"messages":[{"role":"user","content":"a\\ud83d b\\udE00 \\ud83d\\ude00 \\\\ud83d \\u0000"}]}'
    content = Messages().parse(body).messages[0].content
    assert content == "a\ufffd b\ufffd \U0001f600 \\ud83d \0"
    content.encode()


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_text = st.text(max_size=6)
_id = st.sampled_from(["c1", "c2"])
_text_block = st.fixed_dictionaries({"type": st.just("text"), "text": _text}, optional={"cache_control": _json})
_result = st.fixed_dictionaries(
    {"type": st.just("tool_result"), "tool_use_id": _id},
    optional={"content": _text | st.lists(_text_block, max_size=2), "is_error": st.booleans()},
)
_use = st.fixed_dictionaries(
    {
        "type": st.just("tool_use"),
        "id": _id,
        "name": _text,
        "input": st.dictionaries(_text | st.just("__unparsedToolInput"), _json, max_size=2),
    }
)
_thinking = st.fixed_dictionaries({"type": st.just("thinking"), "thinking": _text}, optional={"signature": _text})
_user = st.fixed_dictionaries({"role": st.just("user"), "content": _text | st.lists(_text_block, max_size=2)})
_turn = _user | st.builds(
    lambda before, used, after: [{"role": "assistant", "content": [*before, *used]}, {"role": "user", "content": after}],
    st.lists(_text_block | _thinking, max_size=2),
    st.lists(_use, max_size=2),
    st.lists(_result | _text_block, max_size=3),
)
_messages = st.lists(_turn, min_size=1, max_size=4).map(
    lambda turns: [m for turn in turns for m in (turn if isinstance(turn, list) else [turn])]
)
_tool = st.fixed_dictionaries({"name": _text, "input_schema": st.dictionaries(_text, _json, max_size=2)}, optional={"description": _text})
_likely = st.fixed_dictionaries(
    {"messages": _messages, "max_tokens": st.integers(1, 9)},
    optional={"system": _text | st.lists(_text_block, max_size=2), "tools": st.lists(_tool, max_size=2), "stop_sequences": st.lists(_text)},
)
_paths = st.lists(
    st.sampled_from([0, 1, "messages", "content", "role", "type", "tools", "input", "text", "input_schema", "max_tokens"]), max_size=5
)


def _put(body: Any, path: list[Any], value: Any) -> Any:
    """`body` with `value` where `path` leads, as far as it leads anywhere."""
    if isinstance(body, dict) and path and path[0] in body or isinstance(body, list) and path and path[0] in range(len(body)):
        copy = body.copy()
        copy[path[0]] = _put(copy[path[0]], path[1:], value)
        return copy
    return value if not path else body


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=40) | _likely.map(orjson.dumps) | st.builds(_put, _likely, _paths, _json).map(orjson.dumps))
def test_whatever_is_sent_is_a_request_or_refused(body: bytes) -> None:
    try:
        asked = Messages().parse(body)
    except RequestError as error:
        assert (error.status, bool(error.text)) == (400, True)
        return
    assert all(isinstance(text, str) for turn in asked.messages for text in (turn.role, turn.content, turn.reasoning, turn.tool_call_id))
    FORMAT.render(asked.messages, asked.tools)
