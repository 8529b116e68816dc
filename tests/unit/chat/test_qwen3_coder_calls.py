"""Calls as XML: Qwen3-Coder."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gyre_hpc.chat.parsers.qwen3_coder import Qwen3Coder
from gyre_hpc.chat.parsers.scanner import Scanner

PATIENT = settings(deadline=None)
SCHEMAS = {
    "text": {"type": "string"},
    "count": {"type": "integer"},
    "share": {"type": "number"},
    "deep": {"type": "boolean"},
    "nothing": {"type": ["null", "string"]},
    "either": {"anyOf": [{"type": "array"}, {"type": "object"}]},
    "odd": {"type": 3, "anyOf": "x"},
}
TOOLS: list[dict[str, Any]] = [{"type": "function", "function": {"name": "f", "parameters": {"properties": SCHEMAS}}}]
VALUES = st.lists(
    st.one_of(
        st.sampled_from(["</tool_call>", "</parameter>", "<tool_call>", "</function>", "\n", "x", "<parameter=b>"]), st.text(max_size=4)
    ),
    max_size=6,
).map("".join)


def read(text: str, *pieces: int, tools: list[dict[str, Any]] = TOOLS) -> Scanner:
    scanner = Scanner(Qwen3Coder(), thinks=False, thinking_begun=False, stop=(), tools=tools)
    at = 0
    for length in pieces:
        scanner.feed(text[at : at + length])
        at += length
    scanner.feed(text[at:])
    scanner.finish()
    return scanner


def call(**values: str) -> str:
    inside = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"<tool_call>\n<function=f>\n{inside}</function>\n</tool_call>"


def ends_early(value: str) -> bool:
    """Values that hold what ends a value or a call can be written only by a model that means to end it."""
    flat = "".join((value + "\n</parameter>").split())
    early = ("</parameter><parameter=", "</parameter></function>", "</function></tool_call>")
    return any(mark in flat for mark in early)


@PATIENT
@given(value=VALUES.filter(lambda value: not ends_early(value)), pieces=st.lists(st.integers(1, 9)))
def test_a_value_may_hold_marks_and_comes_back_as_it_was(value: str, pieces: list[int]) -> None:
    scanner = read(call(text=value, more="y") + "\n" + call(), *pieces)
    assert [json.loads(one.arguments) for one in scanner.calls] == [{"text": value, "more": "y"}, {}]
    assert (scanner.broken, scanner.content) == ([], "")


@pytest.mark.parametrize(
    ("key", "written", "arrives"),
    [
        ("text", "3", '"3"'),
        ("count", "3", "3"),
        ("count", " 3 ", "3"),
        ("count", "3.5", '"3.5"'),
        ("count", "three", '"three"'),
        ("count", "true", '"true"'),
        ("share", "3", "3"),
        ("share", "1e-3", "1e-3"),
        ("share", "NaN", '"NaN"'),
        ("deep", "True", "true"),
        ("deep", "false", "false"),
        ("deep", "yes", '"yes"'),
        ("nothing", "None", "null"),
        ("nothing", "none such", '"none such"'),
        ("either", '["a", {"b": 1}]', '["a", {"b": 1}]'),
        ("either", "{'a': 1}", "\"{'a': 1}\""),
        ("odd", "3", '"3"'),
        ("unknown", "3", '"3"'),
    ],
)
def test_values_become_what_the_schema_allows(key: str, written: str, arrives: str) -> None:
    (one,) = read(call(**{key: written})).calls
    assert one.arguments == f'{{"{key}": {arrives}}}'


@pytest.mark.parametrize("tools", [[], [{"type": "function", "function": {"name": "f"}}], [{"function": 3}, {}]])
def test_without_a_schema_all_values_are_strings(tools: list[dict[str, Any]]) -> None:
    (one,) = read(call(count="3"), tools=tools).calls
    assert one.arguments == '{"count": "3"}'


@pytest.mark.parametrize(
    ("text", "reason", "name"),
    [
        ("<tool_call>\n<function=f>\n<parameter=a>\n1\n</function>\n</tool_call>", "the parameter a has no end", "f"),
        ("<tool_call>\n<function=f>\n</tool_call>", "<parameter= or </function> is missing", "f"),
        ("<tool_call>\n<function=f>\nloose text</function>\n</tool_call>", "is missing", "f"),
        ("<tool_call>\n<function=f></function>\nmore</tool_call>", "</tool_call> is missing", "f"),
        ("<tool_call>\n<function=>\n</function>\n</tool_call>", "no proper name", ""),
        ("<tool_call>\n<function=" + "f" * 200 + ">\n</function>\n</tool_call>", "no proper name", ""),
        (call(a="1").replace("</function>", "<parameter=a>\n2\n</parameter>\n</function>"), "a twice", "f"),
        ("<tool_call></tool_call>", "<function= is missing", ""),
    ],
)
def test_what_is_wrong_is_said_in_one_line_and_the_next_call_is_read(text: str, reason: str, name: str) -> None:
    scanner = read("so: " + text + call())
    (bad,) = scanner.broken
    assert (scanner.content, bad.raw, bad.verdict.name, len(scanner.calls)) == ("so: ", text, name, 1)
    assert reason in bad.verdict.reason
    assert "\n" not in bad.verdict.reason


@pytest.mark.parametrize("cut", range(1, len(call(a="1"))))
def test_a_call_cut_anywhere_is_malformed_to_the_last_letter(cut: int) -> None:
    text = call(a="1")[:-cut]
    scanner = read("so" + text)
    if text.startswith("<tool_call>"):
        assert [bad.raw for bad in scanner.broken] == [text]
    else:
        assert scanner.content == "so" + text
    assert not scanner.calls
