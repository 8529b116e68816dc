"""Items of a conversation become the turns they were: what we sent comes back as the same turn, whatever the client keeps of it."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.chat.base import Answer, Message, ToolCall
from gyre_hpc.gateway.protocols.base import Finished, Head, RequestError, Usage
from gyre_hpc.gateway.protocols.responses import Responses

EXECUTION = "train-0-0-0"
PROTOCOL = Responses("secret")
TOOLS = [
    {"type": "function", "name": "shell", "parameters": {"type": "object", "properties": {"command": {}}}},
    {"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "spawn"}, {"type": "function", "name": "wait"}]},
    {"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark", "definition": "start: WORD"}},
]
OPENED = [{"role": "developer", "content": [{"type": "input_text", "text": "rules"}]}, {"role": "user", "content": "go"}]
INCLUDE = ["reasoning.encrypted_content"]


def turns(input: list[dict[str, Any]], **fields: Any) -> tuple[Message, ...]:
    body = {"input": input, "tools": TOOLS, "include": INCLUDE} | fields
    return PROTOCOL.parse_for(EXECUTION, orjson.dumps(body)).messages


def said(call: int, answer: Answer, **fields: Any) -> list[dict[str, Any]]:
    """Output items of one answer."""
    asked = PROTOCOL.parse_for(EXECUTION, orjson.dumps({"input": OPENED, "tools": TOOLS, "include": INCLUDE} | fields))
    finished = Finished(answer=answer, finish="stop", usage=Usage(prompt_tokens=1, completion_tokens=1))
    whole = orjson.loads(PROTOCOL.whole(Head(call=f"{EXECUTION}/{call}", created=1, model="m"), asked, finished))
    output: list[dict[str, Any]] = whole["output"]
    return output


def called(call: int, place: int = 0, name: str = "shell", arguments: str = '{"command": "ls"}') -> ToolCall:
    return ToolCall(id=f"call_{EXECUTION}_{call}_{place}", name=name, arguments=arguments)


def result(call: int, place: int = 0) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": f"call_{EXECUTION}_{call}_{place}", "output": f"result {call}.{place}"}


def turn(answer: Answer) -> Message:
    return Message(role="assistant", content=answer.content, tool_calls=answer.tool_calls, reasoning=answer.reasoning)


FIRST = Answer(content="I look.", reasoning="hm", tool_calls=(called(0), called(0, 1, "spawn", '{ "message":"a\\u00e9" }')))
SECOND = Answer(content="", reasoning="so", tool_calls=(called(1),))
LAST = Answer(content=" \n")


def test_a_conversation_comes_back_as_the_turns_it_was() -> None:
    history = [*OPENED, *said(0, FIRST), result(0), result(0, 1), *said(1, SECOND), result(1), *said(2, LAST)]
    assert turns(history) == (
        Message(role="system", content="rules"),
        Message(role="user", content="go"),
        turn(FIRST),
        Message(role="tool", content="result 0.0", tool_call_id="call_train-0-0-0_0_0", name="shell"),
        Message(role="tool", content="result 0.1", tool_call_id="call_train-0-0-0_0_1", name="spawn"),
        turn(SECOND),
        Message(role="tool", content="result 1.0", tool_call_id="call_train-0-0-0_1_0", name="shell"),
        turn(LAST),
    )


@given(
    st.builds(
        lambda text, reasoning, num: Answer(content=text, reasoning=reasoning, tool_calls=tuple(called(0, n) for n in range(num))),
        st.text(max_size=12),
        st.text(max_size=12),
        st.integers(0, 3),
    ),
    st.sets(st.sampled_from(["id", "status"])),
)
def test_any_answer_comes_back_as_its_turn_with_or_without_ids(answer: Answer, dropped: set[str]) -> None:
    items = [{name: value for name, value in item.items() if name not in dropped} for item in said(0, answer)]
    assert turns([*OPENED, *items])[2:] == (turn(answer),)


def test_a_client_may_keep_the_handle_of_reasoning_and_drop_its_text() -> None:
    reasoning, *rest = said(0, FIRST)
    kept = {"type": "reasoning", "id": reasoning["id"], "summary": [], "content": None, "encrypted_content": reasoning["encrypted_content"]}
    (message,) = turns([*OPENED, kept, *rest])[2:]
    assert (message.content, message.tool_calls, message.reasoning) == (FIRST.content, FIRST.tool_calls, "")


def test_results_between_parallel_calls_do_not_split_their_turn() -> None:
    reasoning, text, first, second = said(0, FIRST)
    history = [*OPENED, reasoning, text, first, result(0), second, result(0, 1)]
    assert turns(history)[2] == turn(FIRST)
    assert [message.role for message in turns(history)] == ["system", "user", "assistant", "tool", "tool"]
    without_ids = [{name: value for name, value in item.items() if name != "id"} for item in history]
    assert turns(without_ids)[2] == turn(FIRST)


def test_answers_that_follow_each_other_stay_apart() -> None:
    one, two = Answer(content="a"), Answer(content="b", reasoning="r")
    assert turns([*OPENED, *said(0, one), *said(1, two)])[2:] == (turn(one), turn(two))
    plain = [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert [message.content for message in turns([*OPENED, *plain])[2:]] == ["a", "b"]


def test_a_message_that_codex_kept_and_got_once_more_is_one_turn() -> None:
    reasoning, text, *calls = said(0, FIRST)
    assert turns([*OPENED, reasoning, text, text, *calls])[2:] == (turn(FIRST),)
    assert turns([*OPENED, reasoning, text, reasoning, text, *calls])[2:] == (turn(FIRST),)


def test_a_tool_in_a_namespace_is_named_bare_to_the_model_and_in_full_to_the_client() -> None:
    item = said(0, FIRST)[3]
    assert (item["type"], item["namespace"], item["name"], item["arguments"]) == (
        "function_call", "agents", "spawn", '{ "message":"a\\u00e9" }',
    )  # fmt: skip
    assert "namespace" not in said(0, FIRST)[2]


def test_equal_names_in_two_namespaces_are_told_apart() -> None:
    twice = [*TOOLS, {"type": "namespace", "name": "other", "tools": [{"type": "function", "name": "spawn"}]}]
    asked = PROTOCOL.parse_for(EXECUTION, orjson.dumps({"input": OPENED, "tools": twice}))
    assert [tool["function"]["name"] for tool in asked.tools] == ["shell", "agents__spawn", "wait", "patch", "other__spawn"]
    items = said(0, Answer(content="", tool_calls=(called(0, 0, "other__spawn"),)), tools=twice)
    assert (items[0]["namespace"], items[0]["name"]) == ("other", "spawn")
    assert turns([*OPENED, *items], tools=twice)[2].tool_calls[0].name == "other__spawn"


def test_a_free_form_tool_is_a_function_of_one_string() -> None:
    call = called(0, 0, "patch", '{"input":"*** Begin\\n"}')
    (item,) = said(0, Answer(content="", tool_calls=(call,)))
    assert (item["type"], item["name"], item["input"], item["call_id"]) == ("custom_tool_call", "patch", "*** Begin\n", call.id)
    output = {"type": "custom_tool_call_output", "call_id": call.id, "output": [{"type": "input_text", "text": "ok"}]}
    assert turns([*OPENED, item, output])[2:] == (
        turn(Answer(content="", tool_calls=(call,))),
        Message(role="tool", content="ok", tool_call_id=call.id, name="patch"),
    )
    (odd,) = said(0, Answer(content="", tool_calls=(called(0, 0, "patch", "not json"),)))
    assert odd["input"] == "not json"


@pytest.mark.parametrize(
    "forged",
    ["enc-gyre-main-0", "gyre1.train-0-0-0_0.0", "gyre1.train-0-0-1_0.{seal}", "gyre1.train-0-0-0_1.{seal}", "gyre1..", "\u00e9", "."],
)
def test_reasoning_that_we_did_not_give_is_refused(forged: str) -> None:
    (item, *_) = said(0, FIRST)
    item["encrypted_content"] = forged.replace("{seal}", item["encrypted_content"].rpartition(".")[2])
    with pytest.raises(RequestError) as caught:
        turns([*OPENED, item])
    assert (caught.value.code, caught.value.field) == ("invalid_encrypted_content", "input[2].encrypted_content")


def test_reasoning_of_another_execution_is_refused() -> None:
    (item, *_) = said(0, FIRST)
    with pytest.raises(RequestError, match="could not be verified"):
        PROTOCOL.parse_for("train-0-0-1", orjson.dumps({"input": [*OPENED, item]}))
    assert turns([*OPENED, item])[2].reasoning == "hm"
