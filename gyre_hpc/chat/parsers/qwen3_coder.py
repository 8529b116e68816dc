"""Qwen3-Coder: `<tool_call>` `<function=NAME>` `<parameter=KEY>` value `</parameter>` ... `</function>` `</tool_call>`.

Values are raw text, without the line break after the opening mark and the one before the closing mark. A value ends at the first
`</parameter>` behind which the call goes on or ends, so that it may hold other marks. It carries no type: where the tools are
given, a value that is valid JSON of a type its schema allows becomes that; everything else is a string. What does not fit ends
at the first closing mark and is malformed.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

from gyre_hpc.chat.base import ToolCall
from gyre_hpc.chat.parsers.base import LONGEST_NAME, CallGrammar, CallInProgress, Verdict, is_name
from gyre_hpc.chat.parsers.typed_values import arguments_json

OPENING, CLOSING = "<tool_call>", "</tool_call>"
_FUNCTION, _FUNCTION_CLOSE = "<function=", "</function>"
_PARAMETER, _PARAMETER_CLOSE = "<parameter=", "</parameter>"
_SPACE = re.compile(r"\s*")
_WANTED = "write <tool_call><function=NAME><parameter=KEY>value</parameter></function></tool_call>"


class Qwen3Coder(CallGrammar):
    """Calls as XML."""

    name = "qwen3_coder"
    opening = OPENING

    def begin(self, tools: Sequence[dict[str, Any]]) -> CallInProgress:
        return _XmlCall(tools)


class _XmlCall(CallInProgress):
    """Goes forward part by part; a part's function says whether there was enough text to do so."""

    def __init__(self, tools: Sequence[dict[str, Any]]) -> None:
        self._tools = tools
        self._at = len(OPENING)
        """Where the next part begins."""
        self._searched = len(OPENING)
        """Up to here no mark of this part was left to look at."""
        self._name, self._key, self._reason = "", "", ""
        self._values: dict[str, str] = {}
        self._part: Callable[[str], bool] = self._header
        self._verdict: Verdict | None = None

    def judge(self, text: str, *, final: bool) -> Verdict | None:
        try:
            while self._verdict is None and self._part(text):
                pass
        except ValueError as error:
            self._reason, self._searched, self._part = str(error), len(OPENING), self._broken
            self._broken(text)
        if self._verdict is None and final:
            close = text.find(CLOSING)
            self._malformed(len(text) if close < 0 else close + len(CLOSING), self._reason or "the call has no end")
        return self._verdict

    def _header(self, text: str) -> bool:
        return self._goes_to({_FUNCTION: self._function}, text)

    def _function(self, text: str) -> bool:
        self._name = self._written_name(text)
        return bool(self._name) and self._go(self._between)

    def _between(self, text: str) -> bool:
        return self._goes_to({_PARAMETER: self._parameter, _FUNCTION_CLOSE: self._end}, text)

    def _parameter(self, text: str) -> bool:
        self._key = self._written_name(text)
        if self._key in self._values:
            raise ValueError(f"it has the parameter {self._key} twice")
        return bool(self._key) and self._go(self._value)

    def _value(self, text: str) -> bool:
        close = text.find(_PARAMETER_CLOSE, self._searched)
        end = text.find(CLOSING, self._searched, len(text) if close < 0 else close)
        if end >= 0:
            if text[self._at : end].rstrip().endswith(_FUNCTION_CLOSE):
                raise ValueError(f"the parameter {self._key} has no end")
            self._searched = end + len(CLOSING)
            return True
        if close < 0:
            self._searched = max(self._searched, len(text) - len(_PARAMETER_CLOSE) + 1)
            return False
        behind = close + len(_PARAMETER_CLOSE)
        try:
            found = _mark_at(text, behind, (_PARAMETER, _FUNCTION_CLOSE))
        except ValueError:  # a closing mark that belongs to the value
            self._searched = behind
            return True
        if found is None:
            return False
        self._values[self._key] = text[self._at : close].removeprefix("\n").removesuffix("\n")
        self._at = behind
        return self._go(self._between)

    def _end(self, text: str) -> bool:
        found = _mark_at(text, self._at, (CLOSING,))
        if found is not None:
            call = ToolCall(name=self._name, arguments=arguments_json(self._name, self._values, self._tools))
            self._verdict = Verdict(end=found[1], call=call, name=self._name)
        return False

    def _broken(self, text: str) -> bool:
        close = text.find(CLOSING, self._searched)
        if close >= 0:
            self._malformed(close + len(CLOSING), self._reason)
        self._searched = max(self._searched, len(text) - len(CLOSING) + 1)
        return False

    def _goes_to(self, parts: dict[str, Callable[[str], bool]], text: str) -> bool:
        found = _mark_at(text, self._at, tuple(parts))
        if found is None:
            return False
        mark, self._at = found
        return self._go(parts[mark])

    def _go(self, part: Callable[[str], bool]) -> bool:
        self._part, self._searched = part, self._at
        return True

    def _written_name(self, text: str) -> str:
        """What stands before the next `>`; empty while that is missing."""
        close = text.find(">", self._at)
        name = text[self._at : len(text) if close < 0 else close]
        if (name or close >= 0) and (not is_name(name[:LONGEST_NAME]) or "<" in name or len(name) > LONGEST_NAME):
            raise ValueError("a tool or a parameter has no proper name")
        self._at = self._at if close < 0 else close + 1
        return name if close >= 0 else ""

    def _malformed(self, end: int, reason: str) -> None:
        self._verdict = Verdict(end=end, reason=f"tool call not understood: {reason}; {_WANTED}", name=self._name)


def _mark_at(text: str, at: int, marks: Sequence[str]) -> tuple[str, int] | None:
    """The mark behind white space and where it ends; None while it may still come. Raises ValueError when it cannot."""
    space = _SPACE.match(text, at)
    at = space.end() if space else at
    for mark in marks:
        if text.startswith(mark, at):
            return mark, at + len(mark)
        if mark.startswith(text[at : at + len(mark)]):
            return None
    raise ValueError(f"{' or '.join(marks)} is missing")
