"""Thinking, text and stop sequences, as they arrive letter by letter."""

import pytest

from gyre_hpc.chat.parsers.base import CallGrammar
from gyre_hpc.chat.parsers.hermes import Hermes
from gyre_hpc.chat.parsers.plain import Plain
from gyre_hpc.chat.parsers.scanner import Scanner

CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'


def scan(grammar: CallGrammar, *, begun: bool = False, thinks: bool = True, stop: tuple[str, ...] = ()) -> Scanner:
    return Scanner(grammar, thinks=thinks, thinking_begun=begun, stop=stop, tools=())


def told(text: str, scanner: Scanner) -> list[tuple[str, str, int]]:
    """What is told after each letter, and at the end."""
    seen = []
    for letter in text:
        scanner.feed(letter)
        seen.append((scanner.reasoning, scanner.content, len(scanner.calls)))
    scanner.finish()
    return [*seen, (scanner.reasoning, scanner.content, len(scanner.calls))]


@pytest.mark.parametrize(
    ("text", "begun", "reasoning", "content"),
    [
        ("<think>\nso\n</think>\n\nyes\n", False, "so", "yes\n"),
        ("so\n\n</think>\nyes", True, "so", "yes"),
        ("<think>\nso</think>yes", True, "so", "yes"),
        ("\n</think>\n\nyes", True, "", "yes"),
        ("\n <think>so</think> yes", False, "so", " yes"),
        ("<think>never ends\n", False, "never ends", ""),
        ("never ends", True, "never ends", ""),
        ("yes <think>no</think>", False, "", "yes <think>no</think>"),
        ("<think", False, "", "<think"),
        ("<think>a</think>\n\n<think>b</think>", False, "a", "<think>b</think>"),
        ("<think>" + CALL + "</think>yes", False, CALL, "yes"),
        ("", True, "", ""),
        (" \n", False, "", " \n"),
    ],
)
def test_thinking_is_what_stands_before_the_answer(text: str, begun: bool, reasoning: str, content: str) -> None:
    seen = told(text, scan(Hermes(), begun=begun))
    assert seen[-1] == (reasoning, content, 0)
    assert all(reasoning.startswith(thought) and content.startswith(said) for thought, said, _ in seen)


def test_a_template_without_thinking_has_marks_of_thinking_as_text() -> None:
    assert told("<think>a</think>b", scan(Hermes(), thinks=False))[-1] == ("", "<think>a</think>b", 0)


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        ("both:\n" + CALL + "\n" + CALL, "both:", 2),
        ("both:\n\n" + CALL + CALL + "\n", "both:\n", 2),
        ("\n" + CALL, "", 1),
        ("a " + CALL + "\nb\n" + CALL + " c\n", "a \nb c\n", 2),
        ("a\n", "a\n", 0),
    ],
)
def test_space_between_calls_is_no_text(text: str, content: str, calls: int) -> None:
    seen = told(text, scan(Hermes()))
    assert seen[-1] == ("", content, calls)
    assert all(content.startswith(said) for _, said, _ in seen)


def test_no_half_mark_is_told() -> None:
    seen = told("a <tool_c and b", scan(Hermes()))
    assert [said for _, said, _ in seen[:9]] == ["a", "a ", *["a "] * 7]
    assert seen[-1][1] == "a <tool_c and b"


@pytest.mark.parametrize(
    ("text", "stop", "content", "met", "calls"),
    [
        ("one STOP two", ("STOP",), "one ", "STOP", 0),
        ("abcdX", ("abcdef", "cd"), "ab", "cd", 0),
        ("abcdef", ("abcdef", "cd"), "", "abcdef", 0),
        ("one" + CALL + "two STOP" + CALL, ("STOP",), "onetwo ", "STOP", 1),
        ("one" + CALL.replace("f", "STOP"), ("STOP",), "one", "", 1),
        ("<think>STOP</think>a STOP", ("STOP",), "a ", "STOP", 0),
        ("a" + CALL, ("<tool_call>",), "a", "<tool_call>", 0),
        ("a", ("", "b"), "a", "", 0),
        ("a b", ("b", "b c"), "a ", "b", 0),
    ],
)
def test_the_earliest_stop_sequence_in_the_text_cuts_all_that_follows(
    text: str, stop: tuple[str, ...], content: str, met: str, calls: int
) -> None:
    scanner = scan(Hermes(), stop=stop)
    seen = told(text, scanner)
    assert (scanner.content, scanner.stopped_by, len(scanner.calls), scanner.broken) == (content, met, calls, [])
    assert all(content.startswith(said) for _, said, _ in seen)


def test_a_plain_model_says_its_marks_as_text() -> None:
    assert told("a\n" + CALL + "\n", scan(Plain()))[-1] == ("", "a\n" + CALL + "\n", 0)
