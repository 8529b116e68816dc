"""Calls as JSON between marks: Hermes, Qwen3."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gyre_hpc.chat.parsers.hermes import Hermes
from gyre_hpc.chat.parsers.scanner import Scanner

PATIENT = settings(deadline=None)
JSONS = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(), st.just("</tool_call>")
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=8,
)
GOOD = '{"name": "f", "arguments": {}}'


def read(text: str, *pieces: int) -> Scanner:
    """The text, fed in pieces of these lengths and then the rest."""
    scanner = Scanner(Hermes(), thinks=False, thinking_begun=False, stop=(), tools=())
    at = 0
    for length in pieces:
        scanner.feed(text[at : at + length])
        at += length
    scanner.feed(text[at:])
    scanner.finish()
    return scanner


def call(body: str) -> str:
    return f"<tool_call>{body}</tool_call>"


@PATIENT
@given(
    arguments=st.dictionaries(st.text(max_size=5), JSONS, max_size=3), indent=st.sampled_from([None, 1]), pieces=st.lists(st.integers(1, 9))
)
def test_arguments_are_the_models_own_text_whatever_they_hold(arguments: dict[str, object], indent: int | None, pieces: list[int]) -> None:
    written = json.dumps(arguments, indent=indent, ensure_ascii=False).encode("utf-8", "replace").decode()
    scanner = read(call(f'\n{{"name": "f", "arguments": {written}}}\n') + "\n" + call(GOOD), *pieces)
    assert [(one.name, one.arguments) for one in scanner.calls] == [("f", written), ("f", "{}")]
    assert (scanner.content, scanner.broken) == ("", [])


@pytest.mark.parametrize("body", ['{"arguments": {"a": 1}, "id": 3, "name": "f"}', '  {"name" :\t"f",\r\n"arguments":{"a": 1}}  '])
def test_order_space_and_other_keys_do_not_matter(body: str) -> None:
    (one,) = read(call(body)).calls
    assert (one.name, one.arguments) == ("f", '{"a": 1}')


@pytest.mark.parametrize(
    ("body", "reason", "name"),
    [
        ('{"name": "f", "arguments": {"a": 1}', "lacks '}'", "f"),
        ('{"name": "f", "arguments": {"a": 1}}}', "more than one", "f"),
        ('{"name": "f", "arguments": "{}"}', "no JSON object", "f"),
        ('{"name": "f"}', "arguments are no JSON object but missing", "f"),
        ('{"arguments": {}}', "names no tool", ""),
        ('{"name": "", "arguments": {}}', "names no tool", ""),
        ('{"name": 7, "arguments": {}}', "names no tool", ""),
        ('{"name": "f", "arguments": {"a": NaN}}', "NaN", "f"),
        ('{"name": "f", "arguments": {"a": "two\nlines"}}', "control character", "f"),
        ('{"name": "f", "arguments": {"a": "say "hi""}}', "delimiter", "f"),
        ('{"name": "f", "name": "g", "arguments": {}}', "twice", "f"),
        ("", "lacks '{'", ""),
        ("[]", "lacks '{'", ""),
        ('{"name": "f", "arguments": ' + '{"a":' * 3000 + "}" * 3000, "", "f"),
        ('{"name": "f", "arguments": {"a": 1' + "0" * 5000 + "}}", "digits", "f"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_and_the_next_call_is_read(body: str, reason: str, name: str) -> None:
    scanner = read("so: " + call(body) + call(GOOD))
    (bad,) = scanner.broken
    assert (scanner.content, bad.raw, bad.verdict.name, len(scanner.calls)) == ("so: ", call(body), name, 1)
    assert reason in bad.verdict.reason
    assert "\n" not in bad.verdict.reason


def test_a_string_without_end_ends_at_the_first_closing_mark_and_spoils_only_its_own_call() -> None:
    broken = '<tool_call>{"name": "f", "arguments": {"a": "oops}}</tool_call>'
    scanner = read(broken + call(GOOD) + " after")
    assert [bad.raw for bad in scanner.broken] == [broken]
    assert (len(scanner.calls), scanner.content) == (1, " after")


def test_a_call_without_end_is_malformed_to_the_last_letter() -> None:
    scanner = read('text\n<tool_call>{"name": "f", "argum')
    assert [bad.raw for bad in scanner.broken] == ['<tool_call>{"name": "f", "argum']
    assert "no end" in scanner.broken[0].verdict.reason
    assert scanner.content == "text"


def test_a_long_call_costs_its_length_however_it_arrives() -> None:
    body = '{"name": "f", "arguments": {"a": "' + '</tool_call> \\" ' * 20000 + '"}}'
    scanner = read(call(body), *[64] * (len(body) // 64))
    assert len(scanner.calls[0].arguments) == len(body) - len('{"name": "f", "arguments": }')
