"""Hermes and Qwen3: `<tool_call>` {"name": ..., "arguments": {...}} `</tool_call>`.

`arguments` stays the model's own JSON text. A closing mark inside a JSON string is text: the call ends at the first closing
mark outside of one. When that leads to no valid call, the first closing mark ends the malformed one.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from gyre_hpc.chat.base import ToolCall
from gyre_hpc.chat.parsers.base import CallGrammar, CallInProgress, Verdict, is_name

OPENING, CLOSING = "<tool_call>", "</tool_call>"
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*("?)', re.DOTALL)
_REST_OF_STRING = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NAME = re.compile(r'"name"\s*:\s*"([^"\\]*)"')
_SPACE = re.compile(r"[ \t\n\r]*")
_WANTED = 'write <tool_call>{"name": "...", "arguments": {...}}</tool_call>'


class Hermes(CallGrammar):
    """Calls as JSON."""

    name = "hermes"
    opening = OPENING

    def begin(self, tools: Sequence[dict[str, Any]]) -> CallInProgress:
        return _JsonCall()


class _JsonCall(CallInProgress):
    def __init__(self) -> None:
        self._searched = self._read = len(OPENING)
        """Up to here no closing mark was left to look at; up to here strings were told apart."""
        self._inside = False
        self._first = 0
        """End of the first closing mark."""
        self._quoted = 0
        """Closing marks in strings."""

    def judge(self, text: str, *, final: bool) -> Verdict | None:
        while (close := text.find(CLOSING, self._searched)) >= 0:
            self._searched = close + len(CLOSING)
            self._first = self._first or self._searched
            if not self._in_string(text, close):
                return self._decide(text, close)
            self._quoted += 1
            # At the 1st, 2nd, 4th, 8th ... of them: a check reads all there is.
            if not self._quoted & (self._quoted - 1) and (reason := _broken_before_its_end(text[len(OPENING) : close])):
                return _malformed(text, self._first, reason)
        self._searched = max(self._searched, len(text) - len(CLOSING) + 1)
        if not final:
            return None
        if self._first:
            return _malformed(text, self._first, f"a string in its JSON has no end; {_WANTED}")
        return _malformed(text, len(text), f"the call has no end; {_WANTED}")

    def _decide(self, text: str, close: int) -> Verdict:
        try:
            name, arguments = read_call(text[len(OPENING) : close])
        except (ValueError, RecursionError) as error:
            return _malformed(text, self._first, f"{str(error) or 'nested too deeply'}; {_WANTED}")
        return Verdict(end=self._searched, call=ToolCall(name=name, arguments=arguments), name=name)

    def _in_string(self, text: str, close: int) -> bool:
        """Whether the closing mark at `close` lies in a JSON string."""
        if self._inside:
            match = _REST_OF_STRING.match(text, self._read, close)
            if match is None:
                self._read = close
                return True
            self._inside, self._read = False, match.end()
        for match in _STRING.finditer(text, self._read, close):
            if not match[1]:
                self._inside = True
                break
        self._read = close
        return self._inside


def read_call(body: str) -> tuple[str, str]:
    """Name and arguments, as text, of a call's JSON. Raises ValueError saying what is wrong, RecursionError."""
    members: dict[str, str] = {}
    decoder = json.JSONDecoder(parse_constant=_no_such_constant)
    at = _expect(body, 0, "{")
    while True:
        key, at = decoder.raw_decode(body, _expect(body, at, '"') - 1)
        start = _past_space(body, _expect(body, at, ":"))
        _, end = decoder.raw_decode(body, start)
        if key in members:
            raise ValueError(f"its JSON has {key!r} twice")
        members[key] = body[start:end]
        at = _past_space(body, end)
        if body[at : at + 1] != ",":
            break
        at += 1
    if _past_space(body, _expect(body, at, "}")) != len(body):
        raise ValueError("there is more than one JSON object in it")
    return _checked(members)


def _checked(members: dict[str, str]) -> tuple[str, str]:
    name = json.loads(members.get("name", "null"))
    if not is_name(name):
        raise ValueError("it names no tool")
    arguments = members.get("arguments", "")
    if not arguments.startswith("{"):
        raise ValueError(f"its arguments are no JSON object but {arguments[:20] or 'missing'}")
    return name, arguments


def _broken_before_its_end(body: str) -> str:
    """Why no continuation makes this valid; empty while its last string might go on."""
    try:
        json.JSONDecoder(parse_constant=_no_such_constant).raw_decode(body, _past_space(body, 0))
    except json.JSONDecodeError as error:
        return "" if error.msg.startswith("Unterminated string") else f"{error}; {_WANTED}"
    except (ValueError, RecursionError) as error:
        return f"{str(error) or 'nested too deeply'}; {_WANTED}"
    return f"there is more than one JSON object in it; {_WANTED}"


def _malformed(text: str, end: int, reason: str) -> Verdict:
    match = _NAME.search(text, 0, end)
    return Verdict(end=end, reason=f"tool call not understood: {reason}", name=match[1] if match and is_name(match[1]) else "")


def _past_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def _expect(text: str, at: int, mark: str) -> int:
    at = _past_space(text, at)
    if text[at : at + 1] != mark:
        raise ValueError(f"its JSON lacks {mark!r} at character {at}")
    return at + 1


def _no_such_constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON")
