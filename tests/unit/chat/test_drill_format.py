"""The invariants of chat/base.py, held by the drill format for anything a model may sample and anything a file may contain."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.chat import create_chat_format
from gyre_hpc.chat.base import Answer, Message, ToolCall
from gyre_hpc.chat.drill import DrillFormat
from gyre_hpc.chat.drill_vocabulary import MARKS, WORDS
from gyre_hpc.errors import UserError

FORMAT = DrillFormat()
TOKENIZER = FORMAT.tokenizer
TOOLS = [{"type": "function", "function": {"name": "shell", "parameters": {"properties": {"command": {"type": "string"}}}}}]
PIECES = st.sampled_from([*MARKS, *WORDS, "cat", "{", '"', "}", "\n", "é", "\N{BOTTLE WITH POPPING CORK}"])
TEXTS = st.lists(st.one_of(PIECES, st.text(st.characters(exclude_categories=["Cs"]), max_size=5)), max_size=8).map("".join)
NON_STOP_IDS = [i for i in range(TOKENIZER.vocab_size) if i not in FORMAT.stop_ids]
SHELL_CALL = TOKENIZER.encode('<tool_call>{"name":"shell","arguments":{"command":"cat a"}}</tool_call>')
SAMPLED = st.lists(st.one_of(st.sampled_from(NON_STOP_IDS).map(lambda i: [i]), st.just(SHELL_CALL)), max_size=10).map(
    lambda parts: [i for part in parts for i in part]
)
MESSAGES = st.lists(st.builds(Message, role=st.sampled_from(["user", "tool", "assistant"]), content=TEXTS), min_size=1, max_size=3)
PROMPT = [Message(role="system", content="You solve small tasks with a shell."), Message(role="user", content="Join a and b into d.")]


@given(TEXTS)
def test_every_text_survives_encoding(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text
    assert TOKENIZER.decode(TOKENIZER.encode_plain(text)) == text


@given(TEXTS)
def test_content_never_becomes_a_mark(text: str) -> None:
    assert not set(TOKENIZER.encode_plain(text)) & set(TOKENIZER.special.values())


@pytest.mark.parametrize("mark", MARKS)
def test_a_mark_is_one_id(mark: str) -> None:
    assert TOKENIZER.encode(mark) == [TOKENIZER.special[mark]]


@given(SAMPLED, MESSAGES)
def test_rendering_a_parsed_answer_gives_its_text_again(sampled: list[int], later: list[Message]) -> None:
    recorded = FORMAT.render(PROMPT, TOOLS) + sampled + [FORMAT.stop_ids[0]]
    answer = FORMAT.parse([*sampled, FORMAT.stop_ids[0]])
    said = answer.content + "".join(bad.raw for bad in answer.malformed)
    as_message = Message(role="assistant", content=said, tool_calls=answer.tool_calls)
    rendered = FORMAT.render([*PROMPT, as_message, *later], TOOLS)
    assert TOKENIZER.decode(recorded + FORMAT.render_suffix(later, ended=True)) == TOKENIZER.decode(rendered)


@given(SAMPLED, MESSAGES)
def test_a_cut_answer_is_closed_by_its_suffix(sampled: list[int], later: list[Message]) -> None:
    ended = [*sampled, FORMAT.stop_ids[0], *FORMAT.render_suffix(later, ended=True)]
    assert sampled + FORMAT.render_suffix(later, ended=False) == ended


@given(SAMPLED, MESSAGES)
def test_the_next_prompt_extends_prompt_and_recorded_answer(sampled: list[int], later: list[Message]) -> None:
    prompt = FORMAT.render(PROMPT, TOOLS)
    longer = prompt + sampled + FORMAT.render_suffix(later, ended=False)
    assert longer[: len(prompt) + len(sampled)] == prompt + sampled


@given(MESSAGES, MESSAGES)
def test_each_turn_is_rendered_on_its_own(first: list[Message], later: list[Message]) -> None:
    whole = FORMAT.render([*first, *later], TOOLS)
    head = FORMAT.render(first, TOOLS)[:-1]
    assert whole == head + FORMAT.render_suffix(later, ended=True)


@given(SAMPLED)
def test_parsing_never_raises_and_loses_no_text(sampled: list[int]) -> None:
    answer = FORMAT.parse(sampled)
    calls = "".join(f'<tool_call>{{"name":"{call.name}","arguments":{call.arguments}}}</tool_call>' for call in answer.tool_calls)
    assert answer.content + calls + "".join(bad.raw for bad in answer.malformed) == TOKENIZER.decode(sampled)
    for call in answer.tool_calls:
        assert isinstance(json.loads(call.arguments), dict)


def test_arguments_keep_the_models_own_json() -> None:
    text = '<tool_call>{"name":"shell","arguments":{ "b":1.50,  "a":"\\u00e9" }}</tool_call>'
    (call,) = FORMAT.parse(TOKENIZER.encode(text)).tool_calls
    assert call == ToolCall(name="shell", arguments='{ "b":1.50,  "a":"\\u00e9" }')


def test_two_calls_and_free_text_are_told_apart() -> None:
    one = '<tool_call>{"name":"shell","arguments":{"command":"mv a b"}}</tool_call>'
    two = '<tool_call>{"name":"look","arguments":{}}</tool_call>'
    answer = FORMAT.parse(TOKENIZER.encode("both: " + one + two))
    assert (answer.content, [call.name for call in answer.tool_calls], answer.malformed) == ("both: ", ["shell", "look"], ())


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name":"shell","arguments":{"command":"echo "}}',
        '<tool_call>{"name":"shell","arguments":{"command":"say "hi""}}</tool_call>',
        '<tool_call>{"name":"shell","arguments":[]}</tool_call>',
        '<tool_call>{"name":"shell","arguments":{}}</tool_call> and more',
        '<tool_call>{"name": "shell", "arguments": {}}</tool_call>',
        "<tool_call></tool_call>",
    ],
)
def test_a_malformed_call_is_kept_with_the_tokens_that_hold_it(text: str) -> None:
    ids = TOKENIZER.encode("so: " + text)
    answer = FORMAT.parse(ids)
    (bad,) = answer.malformed
    assert (answer.content, answer.tool_calls, bad.raw) == ("so: ", (), text)
    assert TOKENIZER.decode(ids[bad.start : bad.end]) == text
    assert bad.name in ("", "shell") and "<tool_call>" in bad.reason


def test_no_call_is_told_before_the_end_since_one_more_letter_would_spoil_it() -> None:
    assert FORMAT.parse([*b"so: ", *SHELL_CALL], partial=True) == Answer(content="so: ")


def test_the_vocabulary_and_the_first_prompt_are_small() -> None:
    assert TOKENIZER.vocab_size < 320
    assert len(FORMAT.render(PROMPT, TOOLS)) <= 20


def test_tools_without_a_system_message_are_shown_all_the_same() -> None:
    text = TOKENIZER.decode(FORMAT.render(PROMPT[1:], TOOLS))
    assert text.startswith("<|im_start|>system\n\n<tools>shell(command)</tools><|im_end|>\n<|im_start|>user\n")


def test_an_unknown_format_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"drill\+drill"):
        create_chat_format("drill", "llama")
