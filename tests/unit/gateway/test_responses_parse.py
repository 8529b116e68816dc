"""What a Responses request means, and what of it is refused by name."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from gyre_hpc.gateway.protocols.base import ChatRequest, RequestError
from gyre_hpc.gateway.protocols.responses import Responses

EXECUTION = "train-0-0-0"
PROTOCOL = Responses("secret")
CODEX = Path(__file__).with_name("codex_0_171_main.json")
"""First request of Codex 0.171, texts left out."""
SHELL = {"type": "function", "name": "shell", "parameters": {"type": "object", "properties": {"command": {"type": "string"}}}}


def parse(**fields: Any) -> ChatRequest:
    return PROTOCOL.parse_for(EXECUTION, orjson.dumps({"model": "m", "input": "hi"} | fields))


def refusal(**fields: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        parse(**fields)
    return caught.value


def test_a_string_is_a_user_turn_after_the_instructions() -> None:
    asked = parse(instructions="be brief", input="hi")
    assert [(message.role, message.content) for message in asked.messages] == [("system", "be brief"), ("user", "hi")]


def test_answers_are_stored_unless_the_client_says_no() -> None:
    assert (parse().store, parse(store=None).store, parse(store=True).store, parse(store=False).store) == (True, True, True, False)
    assert parse(store=False).echo == ()


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("background", True, "background"),
        ("conversation", "conv_1", "conversation"),
        ("prompt", {"id": "pmpt_1"}, "prompt"),
        ("truncation", "auto", "truncation"),
        ("top_logprobs", 2, "top_logprobs"),
        ("tool_choice", "required", "tool_choice"),
        ("tool_choice", {"type": "function", "name": "shell"}, "tool_choice"),
        ("max_tool_calls", 3, "max_tool_calls"),
        ("input", [{"type": "function_call_output", "call_id": "call_1", "output": "x"}], "input[0].call_id"),
        ("context_management", [{"type": "compaction"}], "context_management"),
        ("include", ["file_search_call.results"], "include[0]"),
        ("text", {"format": {"type": "json_object"}}, "text.format.type"),
        ("max_output_tokens", 0, "max_output_tokens"),
        ("temperature", "hot", "temperature"),
        ("metadata", {"a": 1}, "metadata[...]"),
        ("input", [], "input"),
        ("input", None, "input"),
        ("input", [5], "input[0]"),
        ("input", [{"role": "wizard", "content": "x"}], "input[0].role"),
        ("input", [{"type": "item_reference", "id": "msg_1"}], "input[0].type"),
        ("input", [{"type": "web_search_call", "id": "ws_1"}], "input[0].type"),
        ("input", [{"type": "function_call", "call_id": "c", "arguments": "{}"}], "input[0].name"),
        ("input", [{"type": "function_call_output", "call_id": "", "output": "x"}], "input[0].call_id"),
        ("input", [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}], "input[0].content[0]"),
        ("input", [{"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}], "input[0].content[0]"),
        ("tools", [{"type": "web_search"}], "tools[0].type"),
        ("tools", [SHELL, {"type": "file_search", "vector_store_ids": []}], "tools[1].type"),
        ("tools", [{"type": "mcp", "server_label": "x"}], "tools[0].type"),
        ("tools", [{"type": "function"}], "tools[0].name"),
        ("tools", [{"type": "function", "name": "x", "parameters": []}], "tools[0].parameters"),
        ("tools", [SHELL, SHELL], "tools[1].name"),
        (
            "tools",
            [{"type": "namespace", "name": "n", "tools": [{"type": "namespace", "name": "m", "tools": []}]}],
            "tools[0].tools[0].type",
        ),
    ],
)
def test_what_we_cannot_honour_is_refused_by_its_field(field: str, value: Any, named: str) -> None:
    error = refusal(**{field: value})
    assert (error.status, error.field) == (400, named)


@pytest.mark.parametrize(
    "harmless",
    [
        {"reasoning": {"effort": "high", "summary": "auto"}},
        {"text": {"format": {"type": "text"}, "verbosity": "low"}},
        {"parallel_tool_calls": False},
        {"truncation": "disabled", "background": False, "top_logprobs": 0, "tool_choice": "auto"},
        {"include": ["reasoning.encrypted_content"]},
        {"service_tier": "flex", "user": "u", "prompt_cache_key": "k", "client_metadata": {"a": "b"}, "metadata": {"a": "b"}},
    ],
)
def test_what_has_no_effect_is_accepted(harmless: dict[str, Any]) -> None:
    assert [message.content for message in parse(**harmless).messages] == ["hi"]


def test_volatile_fields_do_not_change_the_identity_of_a_call_and_others_do() -> None:
    plain = parse().identity
    assert parse(user="u", metadata={"a": "b"}, prompt_cache_key="k", stream=True, client_metadata={"turn": "7"}).identity == plain
    for other in ({"temperature": 0.5}, {"tools": [SHELL]}, {"previous_response_id": "resp_train-0-0-0_1"}, {"max_output_tokens": 7}):
        assert parse(**other).identity != plain


def test_one_call_at_a_time_can_only_be_promised_without_tools() -> None:
    assert refusal(parallel_tool_calls=False, tools=[SHELL]).field == "parallel_tool_calls"
    assert parse(parallel_tool_calls=False, tools=[]).messages


def test_results_of_calls_in_an_earlier_response_are_taken() -> None:
    given = [{"type": "function_call_output", "call_id": "call_train-0-0-0_1_0", "output": [{"type": "input_text", "text": "x"}]}]
    (message,) = parse(input=given, previous_response_id="resp_train-0-0-0_1").messages
    assert (message.role, message.content, message.tool_call_id) == ("tool", "x", "call_train-0-0-0_1_0")


def test_an_earlier_response_is_named_by_its_call() -> None:
    assert parse(previous_response_id="resp_train-0-0-0_12").previous == "train-0-0-0/12"


@pytest.mark.parametrize("id", ["resp_abc", "train-0-0-0/1", "resp_train-0-0-1_0", "msg_train-0-0-0_0", "resp_train-0-0-0_0\n"])
def test_an_unknown_or_foreign_earlier_response_is_not_found_in_openais_words(id: str) -> None:
    error = refusal(previous_response_id=id)
    assert (error.status, error.code, error.text) == (404, "previous_response_not_found", f"Previous response with id '{id}' not found.")


def test_tools_are_not_offered_when_none_may_be_chosen() -> None:
    assert parse(tools=[SHELL], tool_choice="none").tools == ()
    assert parse(tools=[SHELL]).tools[0]["function"]["name"] == "shell"


def test_codex_is_understood_once_its_hosted_search_is_off() -> None:
    body = orjson.loads(CODEX.read_bytes())
    with pytest.raises(RequestError, match="web_search"):
        PROTOCOL.parse_for(EXECUTION, orjson.dumps(body))
    body["tools"] = [tool for tool in body["tools"] if tool["type"] != "web_search"]
    asked = PROTOCOL.parse_for(EXECUTION, orjson.dumps(body))
    assert [message.role for message in asked.messages] == ["system", "system", "user", "user"]
    assert asked.stream and not asked.store
    names = [tool["function"]["name"] for tool in asked.tools]
    assert "exec_command" in names and "spawn_agent" in names and "multi_agent_v1" not in names


def test_a_value_nested_too_deep_is_our_clients_error() -> None:
    deep = b"[" * 600 + b"]" * 600
    with pytest.raises(RequestError):
        PROTOCOL.parse_for(EXECUTION, b'{"input": "hi", "x": ' + deep + b"}")
    assert PROTOCOL.parse_for(EXECUTION, b'{"input": "hi", "metadata": null, "x": 1}').messages
