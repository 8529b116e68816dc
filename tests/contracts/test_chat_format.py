"""The invariants of chat/base.py, for every kind of chat format, tokenizer and template."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gyre_hpc.chat import create_chat_format
from gyre_hpc.chat.base import Answer, ChatFormat, Message, ToolCall
from gyre_hpc.config.model_schema import ModelConfig, PastThinking
from tests.fakes.chat_folders import tokenizer_folder


@dataclass(frozen=True)
class Kind:
    """One format, and what is known of it."""

    model: ModelConfig
    calls: str = "hermes"
    thinks: bool = False
    grows: bool = True


def _folder(template: str = "", **more: Any) -> ModelConfig:
    return ModelConfig(**{"tokenizer": str(tokenizer_folder(template)), "template": "own" if template else "chatml"} | more)


KINDS = {
    "drill": Kind(ModelConfig(), calls="drill"),
    "chatml": Kind(_folder(), thinks=True),
    "guarded": Kind(_folder(guard_marks=True), thinks=True),
    "forgets": Kind(_folder("forgets"), thinks=True),
    "opens_thinking": Kind(_folder("opens_thinking"), thinks=True),
    "coder": Kind(_folder("coder"), calls="qwen3_coder"),
    "strict": Kind(_folder("strict"), calls="none"),
    "names_results": Kind(_folder("names_results"), calls="qwen3_coder"),
    "counts_turns": Kind(_folder("counts_turns"), calls="qwen3_coder", grows=False),
    "tells_time": Kind(_folder("tells_time"), calls="qwen3_coder", grows=False),
    "merges_results": Kind(_folder("merges_results"), calls="none", grows=False),
}
FORMATS: dict[str, ChatFormat] = {name: create_chat_format(kind.model) for name, kind in KINDS.items()}
GROWING = [name for name, kind in KINDS.items() if kind.grows]
CALLING = [name for name in GROWING if KINDS[name].calls != "none"]

TOOLS = [{"type": "function", "function": {"name": "shell", "parameters": {"properties": {"command": {"type": "string"}}}}}]
THOUGHT = re.compile(r"<think>(?:.*?</think>\s*|\s*\Z)", re.DOTALL)
MARKS = ["<tool_call>", "</tool_call>", "<think>", "</think>", "<function=shell>", "</function>", "<parameter=a>", "</parameter>", "\n"]
GOOD = {
    "hermes": '<tool_call>\n{"name": "shell", "arguments": {"command": "ls"}}\n</tool_call>',
    "drill": '<tool_call>{"name":"shell","arguments":{"command":"cat a"}}</tool_call>',
    "qwen3_coder": "<tool_call>\n<function=shell>\n<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>",
    "none": "no call",
}
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
TEXTS = st.lists(
    st.one_of(st.sampled_from([*MARKS, *GOOD.values(), "<|im_end|>", "stop", "st", '{"name": "', '"', "<tool_"]), WORDS), max_size=8
)
PLAIN = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zs"], exclude_characters="<"), min_size=1, max_size=8)
PATIENT = settings(deadline=None, max_examples=25)
BEFORE = [Message(role="system", content="be brief"), Message(role="user", content="hello")]
STOPS = st.lists(st.sampled_from(["stop", "st", "\n", "top</", "<tool_call>"]), max_size=2, unique=True)


def sampled(name: str) -> st.SearchStrategy[list[int]]:
    """Whatever a model may sample: text in the tokenizer's spelling, single bytes, any id, ids that mean nothing."""
    tokenizer = FORMATS[name].tokenizer
    texts = TEXTS.map("".join).map(tokenizer.encode)
    stray = st.lists(st.integers(0, tokenizer.vocab_size + 2), max_size=4)
    return st.lists(st.one_of(texts, stray), max_size=5).map(lambda parts: [id for part in parts for id in part])


def spelled(kind: Kind, reasoning: str, content: str, calls: Sequence[str]) -> str:
    """What a model writes that says this, exactly as its template would."""
    if kind.calls == "drill":
        return content + "".join(f'<tool_call>{{"name":"shell","arguments":{{"command":"{word}"}}}}</tool_call>' for word in calls)
    form = '<tool_call>\n{{"name": "shell", "arguments": {{"command": "{}"}}}}\n</tool_call>'
    if kind.calls == "qwen3_coder":
        form = "<tool_call>\n<function=shell>\n<parameter=command>\n{}\n</parameter>\n</function>\n</tool_call>"
    thought = f"<think>\n{reasoning}\n</think>\n\n" if reasoning else ""
    return thought + "\n".join([*([content] if content else []), *(form.format(word) for word in calls)])


def as_message(answer: Answer) -> Message:
    calls = tuple(replace(call, id=f"call{place}") for place, call in enumerate(answer.tool_calls))
    return Message(role="assistant", content=answer.content, tool_calls=calls, reasoning=answer.reasoning)


def results(answer: Message) -> list[Message]:
    return [Message(role="tool", content="done", tool_call_id=call.id, name=call.name) for call in answer.tool_calls]


def answered(name: str, reasoning: str, content: str, calls: Sequence[str]) -> tuple[list[int], Message]:
    """Output ids and what they say."""
    kind, chat = KINDS[name], FORMATS[name]
    text = spelled(kind, reasoning if kind.thinks else "", content, calls)
    if name == "opens_thinking":
        text = text.removeprefix("<think>\n")
    ids = [*chat.tokenizer.encode(text), chat.stop_ids[0]]
    return ids, as_message(chat.parse(ids))


@pytest.mark.parametrize("name", KINDS)
def test_ids_without_a_token_say_nothing(name: str) -> None:
    """Embeddings have rows to spare, and a model may sample one."""
    chat = FORMATS[name]
    tokenizer, word = chat.tokenizer, chat.tokenizer.encode("word")
    for stray in (tokenizer.vocab_size, 1 << 30, -1):
        assert tokenizer.decode([stray, *word, stray]) == "word"
        assert tokenizer.bytes_of(stray) == b""
        assert chat.parse([stray, *word, stray]) == chat.parse(word)


@pytest.mark.parametrize("name", CALLING)
@PATIENT
@given(reasoning=PLAIN, content=st.one_of(st.just(""), PLAIN), calls=st.lists(st.sampled_from(["ls", "cat notes"]), max_size=2))
def test_an_answer_in_the_formats_own_spelling_comes_back(name: str, reasoning: str, content: str, calls: list[str]) -> None:
    _, message = answered(name, reasoning, content, calls)
    assert (message.content, message.reasoning) == (content, reasoning if KINDS[name].thinks else "")
    assert [(call.name, call.arguments.replace(" ", "")) for call in message.tool_calls] == [
        ("shell", f'{{"command":"{word}"}}'.replace(" ", "")) for word in calls
    ]


@pytest.mark.parametrize("name", CALLING)
@PATIENT
@given(content=PLAIN, calls=st.lists(st.sampled_from(["ls", "cat notes"]), min_size=1, max_size=2))
def test_tool_results_extend_prompt_and_recorded_answer_to_the_text_of_the_whole(name: str, content: str, calls: list[str]) -> None:
    chat = FORMATS[name]
    ids, message = answered(name, "so be it", content, calls)
    later = results(message)
    following = chat.render(BEFORE, TOOLS) + ids + chat.render_suffix(later, ended=True)
    assert chat.tokenizer.decode(following) == chat.tokenizer.decode(chat.render([*BEFORE, message, *later], TOOLS))


@pytest.mark.parametrize("name", GROWING)
@PATIENT
@given(content=PLAIN, question=TEXTS.map("".join), mid=st.booleans())
def test_questions_and_system_turns_extend_them_too_but_for_dropped_thinking(name: str, content: str, question: str, mid: bool) -> None:
    chat = FORMATS[name]
    ids, message = answered(name, "so be it", content, [])
    later = [Message(role="user", content=question), *([Message(role="system", content="mind the gap")] if mid else [])]
    following = chat.tokenizer.decode(chat.render(BEFORE, []) + ids + chat.render_suffix(later, ended=True))
    whole = chat.tokenizer.decode(chat.render([*BEFORE, message, *later], []))
    if "forgets" in name or "opens" in name:
        later_text = chat.tokenizer.decode(chat.render_suffix(later, ended=True))
        following, whole = (THOUGHT.sub("", text.removesuffix(later_text)) + later_text for text in (following, whole))
    assert following == whole


@pytest.mark.parametrize("name", [name for name in KINDS if name not in GROWING])
@pytest.mark.parametrize("later", [[Message(role="user", content="more")], [Message(role="tool", content="done", tool_call_id="x")]])
def test_a_template_that_rewrites_gives_no_suffix_and_says_so_once(name: str, later: list[Message]) -> None:
    chat = FORMATS[name]
    with pytest.raises(ValueError, match="rewrites"):
        chat.render_suffix(later, ended=True)
    assert any("from scratch" in notice for notice in chat.notices)
    assert chat.render([*BEFORE, Message(role="assistant", content="hi"), later[0]], [])


@pytest.mark.parametrize("name", GROWING)
@PATIENT
@given(later=st.lists(st.builds(Message, role=st.sampled_from(["user", "system"]), content=TEXTS.map("".join)), max_size=3))
def test_a_cut_answer_is_closed_by_its_suffix(name: str, later: list[Message]) -> None:
    chat = FORMATS[name]
    assert chat.render_suffix(later, ended=False) == [chat.stop_ids[0], *chat.render_suffix(later, ended=True)]


@pytest.mark.parametrize("name", KINDS)
@PATIENT
@given(data=st.data(), stop=STOPS)
def test_parsing_never_raises_and_nothing_told_is_taken_back(name: str, data: st.DataObject, stop: list[str]) -> None:
    chat = FORMATS[name]
    ids = data.draw(sampled(name))
    whole = chat.parse(ids, stop=stop, tools=TOOLS)
    reader = chat.reader(stop=stop, tools=TOOLS)
    before, fed = Answer(content=""), 0
    for piece in data.draw(st.lists(st.sampled_from([1, 1, 2, 7, 64]), max_size=30)):
        now = reader.feed(ids[fed : fed + piece])
        fed += piece
        assert now == chat.parse(ids[:fed], stop=stop, partial=True, tools=TOOLS)
        for later in (now, whole):
            assert later.content.startswith(before.content)
            assert later.reasoning.startswith(before.reasoning)
            assert later.tool_calls[: len(before.tool_calls)] == before.tool_calls
            assert before.stopped_by in ("", later.stopped_by)
        assert not now.malformed
        before = now
    reader.feed(ids[fed:])
    assert reader.finish() == whole


@pytest.mark.parametrize("name", KINDS)
@PATIENT
@given(data=st.data())
def test_a_malformed_call_is_kept_with_exactly_the_tokens_that_hold_it(name: str, data: st.DataObject) -> None:
    chat = FORMATS[name]
    ids = data.draw(sampled(name))
    answer = chat.parse([*ids, chat.stop_ids[0]])
    decode = chat.tokenizer.decode
    for bad in answer.malformed:
        assert bad.raw in decode(ids[bad.start : bad.end])
        assert bad.raw not in decode(ids[bad.start + 1 : bad.end])
        # By bytes: parts of a broken character read like the whole of it.
        last = chat.tokenizer.bytes_of(ids[bad.end - 1])
        assert last if bad.raw.endswith("\ufffd") else bad.raw not in decode(ids[bad.start : bad.end - 1])
        assert bad.raw not in answer.content
        assert bad.reason
        assert "\n" not in bad.reason
    ends = [0, *(bad.end for bad in answer.malformed)]
    assert all(bad.start >= end for bad, end in zip(answer.malformed, ends, strict=False))


@pytest.mark.parametrize("name", KINDS)
@PATIENT
@given(data=st.data(), word=st.sampled_from(["stop", "hello", "\n"]))
def test_no_text_goes_beyond_a_stop_sequence(name: str, data: st.DataObject, word: str) -> None:
    answer = FORMATS[name].parse(data.draw(sampled(name)), stop=[word])
    assert word not in answer.content or answer.tool_calls or answer.malformed
    assert answer.stopped_by in ("", word)


@pytest.mark.parametrize("name", KINDS)
def test_an_end_mark_spelled_in_pieces_does_not_end_the_answer(name: str) -> None:
    chat = FORMATS[name]
    spelled_out = [id for letter in "</think>ok<|im_end|>" for id in chat.tokenizer.encode(letter)]
    told = chat.parse(spelled_out)
    assert told.content.endswith("ok<|im_end|>")
    assert chat.parse([*chat.tokenizer.encode("</think>ok"), chat.stop_ids[0]]).content.endswith("ok")


@pytest.mark.parametrize("name", ["chatml", "forgets"])
def test_sampled_ids_that_would_be_encoded_otherwise_stay_the_context(name: str) -> None:
    chat = FORMATS[name]
    odd = [*chat.tokenizer.encode("he"), *chat.tokenizer.encode("llo"), chat.stop_ids[0]]
    assert chat.tokenizer.encode(chat.tokenizer.decode(odd)) != odd
    following = chat.render(BEFORE, []) + odd + chat.render_suffix([Message(role="user", content="more")], ended=True)
    whole = chat.render([*BEFORE, as_message(chat.parse(odd)), Message(role="user", content="more")], [])
    assert following != whole
    assert chat.tokenizer.decode(following) == chat.tokenizer.decode(whole)


def test_where_the_template_rules_a_question_after_thinking_makes_a_branch_and_a_tool_result_does_not() -> None:
    chat = create_chat_format(replace(KINDS["forgets"].model, past_thinking=PastThinking.template))
    question, result = [Message(role="user", content="more")], [Message(role="tool", content="done", tool_call_id="x")]
    with pytest.raises(ValueError, match="thinking"):
        chat.render_suffix(question, ended=True)
    assert chat.render_suffix(question, ended=True, thought=False) == FORMATS["forgets"].render_suffix(question, ended=True)
    assert chat.render_suffix(result, ended=True) == FORMATS["forgets"].render_suffix(result, ended=True)


def test_a_tool_result_without_its_name_makes_a_branch_where_the_template_shows_it() -> None:
    chat = FORMATS["names_results"]
    with pytest.raises(ValueError, match="names"):
        chat.render_suffix([Message(role="tool", content="done", tool_call_id="x")], ended=True)
    call = ToolCall(name="shell", arguments="{}", id="x")
    turns = [*BEFORE, Message(role="assistant", tool_calls=(call,)), Message(role="tool", content="done", tool_call_id="x")]
    assert "shell: done" in chat.tokenizer.decode(chat.render(turns, TOOLS))


@pytest.mark.parametrize(("name", "foreign"), [("coder", "hermes"), ("chatml", "qwen3_coder")])
def test_calls_of_another_kind_are_counted_as_malformed_never_passed_over(name: str, foreign: str) -> None:
    chat = FORMATS[name]
    answer = chat.parse(chat.tokenizer.encode("so: " + GOOD[foreign] + "\n" + GOOD[foreign]))
    assert (answer.content, answer.tool_calls) == ("so: ", ())
    assert [bad.raw for bad in answer.malformed] == [GOOD[foreign]] * 2
    assert [bad.name for bad in answer.malformed] in (["shell", "shell"], ["", ""])


@PATIENT
@given(text=TEXTS.map("".join))
def test_guarded_content_spells_no_control_token_and_is_the_same_text(text: str) -> None:
    guarded, open_ = FORMATS["guarded"], FORMATS["chatml"]
    turns = [Message(role="user", content=text)]
    ids = guarded.render(turns, [])
    assert guarded.tokenizer.decode(ids) == open_.tokenizer.decode(open_.render(turns, []))
    marks = set(guarded.tokenizer.special.values())
    assert [id for id in ids if id in marks] == [id for id in guarded.render([Message(role="user")], []) if id in marks]
    assert guarded.render_suffix(turns, ended=True)[1:] == ids[: len(ids)]
