"""Anthropic Messages -> one request: what is one turn however it is written, what becomes of blocks, what is refused by name."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from gyre_hpc.chat.base import Message, ToolCall
from gyre_hpc.gateway.protocols.base import ChatRequest, RequestError
from gyre_hpc.gateway.protocols.messages import Messages
from gyre_hpc.gateway.protocols.messages_thinking import carried, sign

RECORDED: dict[str, dict[str, Any]] = orjson.loads((Path(__file__).parent / "claude_code_requests.json").read_bytes())
USER = {"role": "user", "content": "hi"}
CALL = {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "ls"}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "a"}
CALLED = [USER, {"role": "assistant", "content": [CALL]}, {"role": "user", "content": [RESULT]}]
TOOL = {"name": "Bash", "description": "runs", "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}}}
LATER = {"name": "Later", "defer_loading": True, "input_schema": {"type": "object", "properties": {}}}


def parse(**change: Any) -> ChatRequest:
    body = {"model": "m", "max_tokens": 10, "messages": [USER]} | change
    return Messages().parse(orjson.dumps({name: value for name, value in body.items() if value is not ...}))


def assistant(*blocks: dict[str, Any]) -> Message:
    """The turn that these blocks of an assistant become."""
    return parse(messages=[USER, {"role": "assistant", "content": list(blocks)}, USER]).messages[1]


@pytest.mark.parametrize("name", sorted(set(RECORDED) - {"cc220_01_title_helper"}))
def test_what_claude_code_sends_is_taken(name: str) -> None:
    body = RECORDED[name]
    asked = Messages().parse(orjson.dumps(body))
    called = {call.id for message in asked.messages for call in message.tool_calls}
    answered = {message.tool_call_id for message in asked.messages if message.role == "tool"}
    assert answered <= called
    assert asked.messages[0].role == "system"
    assert asked.messages[0].content.count("\n") == len(body["system"]) - 1
    assert [tool["function"]["name"] for tool in asked.tools] == [tool["name"] for tool in body["tools"] if not tool.get("defer_loading")]
    assert (asked.stream, asked.max_new_tokens) == (body.get("stream", False), 32000)


def test_a_title_with_a_fixed_form_is_refused_by_its_field() -> None:
    with pytest.raises(RequestError, match=r"^output_config.format: not supported here"):
        Messages().parse(orjson.dumps(RECORDED["cc220_01_title_helper"]))


def test_results_of_tools_come_before_the_text_beside_them() -> None:
    content = [RESULT, {"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    asked = parse(messages=[*CALLED[:2], {"role": "user", "content": content}])
    assert asked.messages == (
        Message(role="user", content="hi"),
        Message(role="assistant", tool_calls=(ToolCall(id="c1", name="Bash", arguments='{"command":"ls"}'),)),
        Message(role="tool", content="a", tool_call_id="c1", name="Bash"),
        Message(role="user", content="one\ntwo"),
    )


@pytest.mark.parametrize(
    "content", ["a", [{"type": "text", "text": "a"}], [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]]
)
def test_a_string_and_its_one_block_are_the_same_turn(content: Any) -> None:
    result = RESULT | {"content": content, "cache_control": {"type": "ephemeral"}}
    for messages, plain in (
        ([{"role": "user", "content": content}], [{"role": "user", "content": "a"}]),
        ([USER, {"role": "system", "content": content}], [USER, {"role": "system", "content": "a"}]),
        ([*CALLED[:2], {"role": "user", "content": [result]}], CALLED),
    ):
        changed, same = parse(messages=messages), parse(messages=plain)
        assert (changed.messages, changed.identity) == (same.messages, same.identity)
    assert parse(system=content).messages == parse(system="a").messages


def test_what_moves_from_turn_to_turn_is_no_part_of_a_calls_identity() -> None:
    moving = {"metadata": {"user_id": "x"}, "stream": True, "service_tier": "auto", "cache_control": {"type": "ephemeral"}}
    plain, same = parse(tools=[TOOL]), parse(tools=[TOOL | {"cache_control": {"type": "ephemeral"}}], **moving)
    assert (plain.identity, plain.tools) == (same.identity, same.tools)
    assert plain.identity != parse(tools=[TOOL | {"description": "walks"}]).identity
    assert plain.identity != parse(tools=[TOOL], max_tokens=11).identity
    assert plain.identity != parse(tools=[TOOL], temperature=0.5).identity


def test_blocks_of_an_assistant_are_one_text() -> None:
    turn = assistant({"type": "text", "text": "\n one "}, {"type": "text", "text": ""}, {"type": "text", "text": "two\n"})
    assert turn == Message(role="assistant", content="\n one two\n")


@pytest.mark.parametrize("raw", ['{"command":"echo hi",}', "", "[1]", 'null"'])
def test_arguments_that_never_were_an_object_come_back_as_they_were(raw: str) -> None:
    block = CALL | {"input": {"__unparsedToolInput": {"raw": raw, "len": len(raw)}}}
    assert assistant(block).tool_calls[0].arguments == raw


@pytest.mark.parametrize("odd", [{"__unparsedToolInput": 1}, {"__unparsedToolInput": {"raw": "x"}, "b": 1}, {}])
def test_other_inputs_are_json_of_themselves(odd: dict[str, Any]) -> None:
    assert orjson.loads(assistant(CALL | {"input": odd}).tool_calls[0].arguments) == odd


def test_thinking_comes_back_from_its_block_or_from_its_signature() -> None:
    shown = {"type": "thinking", "thinking": " why \n", "signature": sign("e/0", " why \n", shown=True)}
    left_out = {"type": "thinking", "thinking": "", "signature": sign("e/0", " why \u00e9 \n", shown=False)}
    redacted = {"type": "redacted_thinking", "data": sign("e/0", "and so", shown=False)}
    assert assistant(shown).reasoning == " why \n"
    assert assistant(left_out, redacted).reasoning == " why \u00e9 \nand so"
    assert assistant({"type": "thinking", "thinking": "x"}).reasoning == "x"


@pytest.mark.parametrize(
    "signature", ["", "EqQBCkYIBxgCKkA", "gyre1", "gyre1.", "gyre1.ZQ==.***", "gyre1.ZQ==._w==", "gyre1.\u00e9.\u00e9"]
)
def test_a_signature_that_is_not_ours_carries_nothing(signature: str) -> None:
    assert carried(signature) == ""
    assert assistant({"type": "thinking", "thinking": "", "signature": signature}) == Message(role="assistant")


def test_a_result_that_is_an_error_says_so() -> None:
    for content, text in (("no such file", "Error: no such file"), (None, "Error: "), ([], "Error: ")):
        asked = parse(messages=[*CALLED[:2], {"role": "user", "content": [RESULT | {"is_error": True, "content": content}]}])
        assert asked.messages[2].content == text
    assert parse(messages=[*CALLED[:2], {"role": "user", "content": [RESULT | {"is_error": False}]}]).messages[2].content == "a"


def test_a_deferred_tool_is_shown_where_it_is_named() -> None:
    """The first tokens of the prompt stay what they were."""
    found = RESULT | {"content": [{"type": "tool_reference", "tool_name": "Later"}]}
    added = {"role": "system", "content": [{"type": "tool_addition", "tool": {"type": "tool_reference", "name": "Later"}}]}
    gone = {"role": "system", "content": [{"type": "tool_removal", "tool": {"type": "tool_reference", "name": "Later"}}]}
    asked = parse(tools=[TOOL, LATER], messages=[*CALLED[:2], {"role": "user", "content": [found]}, added, gone])
    assert asked.tools == parse(tools=[TOOL]).tools
    assert asked.messages[2].content == asked.messages[3].content
    assert asked.messages[2].content.startswith('Tool available: {"type":"function","function":{"name":"Later"')
    assert asked.messages[4].content == "Tool no longer available: Later"


def test_no_tools_are_offered_when_none_may_be_chosen() -> None:
    assert parse(tools=[TOOL], tool_choice={"type": "none"}).tools == ()
    assert parse(tools=[TOOL], tool_choice={"type": "auto"}).tools[0]["function"] == {
        "name": "Bash",
        "description": "runs",
        "parameters": TOOL["input_schema"],
    }


def test_limits_and_sampling_are_read() -> None:
    asked = parse(stop_sequences=["END", "\n\nHuman:"], temperature=1, top_p=0.5, top_k=3, stream=True)
    assert (asked.stop, asked.requested) == (("END", "\n\nHuman:"), {"temperature": 1, "top_p": 0.5, "top_k": 3})
    assert (asked.stream, asked.max_new_tokens, asked.model) == (True, 10, "m")


@pytest.mark.parametrize(
    "accepted",
    [
        {"thinking": {"type": "enabled", "budget_tokens": 1024}},
        {"thinking": {"type": "adaptive", "display": "omitted"}},
        {"thinking": {"type": "disabled"}},
        {"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}},
        {"output_config": {"effort": "high"}},
        {"mcp_servers": [], "container": None},
        {"gyre_exec": "e42"},
        {"tools": [TOOL | {"type": "custom", "input_schema": {"type": "object", "properties": None}}]},
    ],
)
def test_what_has_no_effect_is_accepted(accepted: dict[str, Any]) -> None:
    assert parse(**accepted).messages == (Message(role="user", content="hi"),)
