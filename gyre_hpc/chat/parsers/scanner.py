"""Reads an answer from left to right: thinking, text, tool calls. What it has told, later text cannot take back.

    think ─▶ text ⇄ call        text ─▶ stopped (a stop sequence was met; the rest is nobody's)

White space that belongs to the marks is no content: line breaks around thinking and, where the kind of call owns it, one line
break before a call, white space between and after calls. `<think>` counts only as the first thing an answer says, or when the prompt has said it; a call inside
thinking is thinking. Stop sequences are looked for in text alone.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gyre_hpc.chat.base import ToolCall
from gyre_hpc.chat.parsers.base import CallGrammar, CallInProgress, Verdict

THINK, THINK_END = "<think>", "</think>"
_BITE = 4096
"""Characters read at once: what is left of them is copied at every mark."""


class Place(enum.Enum):
    """Where in an answer we are."""

    beginning = "beginning"
    thinking = "thinking"
    after_thinking = "after_thinking"
    text = "text"
    call = "call"
    stopped = "stopped"


@dataclass(frozen=True, kw_only=True, slots=True)
class BrokenCall:
    """A malformed call and where its characters are."""

    raw: str
    start: int
    verdict: Verdict


class Scanner:
    """One answer. `feed` text as it comes, then `finish`."""

    def __init__(
        self, grammar: CallGrammar, *, thinks: bool, thinking_begun: bool, stop: Sequence[str], tools: Sequence[dict[str, Any]]
    ) -> None:
        self.content = self.reasoning = self.stopped_by = ""
        self.calls: list[ToolCall] = []
        self.broken: list[BrokenCall] = []
        self._grammar, self._tools = grammar, tools
        self._stop = sorted({word for word in stop if word}, key=len)
        self._marks = [*self._stop, *((grammar.opening,) if grammar.opening else ())]
        self._begun = thinking_begun
        self._place = Place.beginning if thinks else Place.text
        self._rest = ""
        self._offset = 0
        """Characters before `_rest`."""
        self._blank = True
        """No text since the last call, or since the beginning."""
        self._call: CallInProgress | None = None

    def feed(self, text: str) -> None:
        for at in range(0, len(text), _BITE):
            self._rest += text[at : at + _BITE]
            self._advance(final=False)

    def finish(self) -> None:
        self._advance(final=True)

    def _advance(self, *, final: bool) -> None:
        step = {
            Place.beginning: self._beginning,
            Place.thinking: self._thinking,
            Place.after_thinking: self._after_thinking,
            Place.text: self._text,
            Place.call: self._in_call,
            Place.stopped: self._stopped,
        }
        while step[self._place](final):
            pass

    def _beginning(self, final: bool) -> bool:
        said = self._rest.lstrip()
        if said.startswith(THINK):
            self._take(len(self._rest) - len(said) + len(THINK))
            self._place = Place.thinking
        elif THINK.startswith(said) and not final:
            return False
        else:
            self._place = Place.thinking if self._begun else Place.text
        return True

    def _thinking(self, final: bool) -> bool:
        end = self._rest.find(THINK_END)
        keep = end if end >= 0 else len(self._rest) if final else _half_mark(self._rest, (THINK_END,))
        thought = self._rest[:keep].rstrip("\n")
        self.reasoning = self.reasoning + thought if self.reasoning else thought.lstrip("\n")
        if end < 0:
            self._take(len(thought))
            return False
        self._take(end + len(THINK_END))
        self._place = Place.after_thinking
        return True

    def _after_thinking(self, final: bool) -> bool:
        self._take(len(self._rest) - len(self._rest.lstrip("\n")))
        if not self._rest:
            return False
        self._place = Place.text
        return True

    def _text(self, final: bool) -> bool:
        place, mark = _first_mark(self._rest, self._marks)
        half = len(self._rest) if final else _half_mark(self._rest, self._marks)
        if half < place or not mark:
            self._say(self._take_text(half, final))
            return False
        before = self._rest[:place]
        if mark in self._stop:
            self._say(before)
            self.stopped_by, self._place = mark, Place.stopped
        else:
            self._say(self._before_call(before))
            self._take(place)
            self._call, self._place = self._grammar.begin(self._tools), Place.call
        return True

    def _take_text(self, end: int, final: bool) -> str:
        """Text before `end` that is certain: white space may turn out to belong to a call."""
        text = self._rest[:end]
        if not self._grammar.owns_space:
            self._take(end)
            return text
        if self._blank and not text.strip():
            if not final:
                return ""
            self._take(end)
            return "" if self.calls or self.broken else text
        if not final and text.endswith("\n"):
            text = text[:-1]
        self._take(len(text))
        return text

    def _before_call(self, text: str) -> str:
        if not self._grammar.owns_space:
            return text
        return "" if self._blank and not text.strip() else text.removesuffix("\n")

    def _in_call(self, final: bool) -> bool:
        assert self._call is not None
        verdict = self._call.judge(self._rest, final=final)
        if verdict is None:
            return False
        if verdict.call is not None:
            self.calls.append(verdict.call)
        else:
            self.broken.append(BrokenCall(raw=self._rest[: verdict.end], start=self._offset, verdict=verdict))
        self._take(verdict.end)
        self._call, self._place, self._blank = None, Place.text, True
        return True

    def _stopped(self, final: bool) -> bool:
        self._rest = ""
        return False

    def _say(self, text: str) -> None:
        self.content += text
        self._blank = self._blank and not text.strip()

    def _take(self, length: int) -> None:
        self._rest = self._rest[length:]
        self._offset += length


def _first_mark(text: str, marks: Sequence[str]) -> tuple[int, str]:
    """Place and mark of the first one; of two at one place the one that comes first in `marks`."""
    found = [(place, rank) for rank, mark in enumerate(marks) if (place := text.find(mark)) >= 0]
    if not found:
        return len(text), ""
    place, rank = min(found)
    return place, marks[rank]


def _half_mark(text: str, marks: Sequence[str]) -> int:
    """Where an end of `text` begins that may be the beginning of a mark; len(text) when there is none."""
    longest = max(map(len, marks), default=1) - 1
    for place in range(max(0, len(text) - longest), len(text)):
        if any(len(mark) > len(text) - place and mark.startswith(text[place:]) for mark in marks):
            return place
    return len(text)
