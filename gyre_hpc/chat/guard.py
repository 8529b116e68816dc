"""Marks that content only quotes: with `model.guard_marks` they never become the control tokens they spell.

Without it a `<|im_end|>` in a file ends the turn, as with `transformers`. A spacer goes into every mark in what users, tools and
schemas say, before the template is rendered; the text is tokenised in parts between spacers, which then are gone. The text
the model sees is the same, only its ids differ.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_SPACERS = [chr(code) for code in range(0xFDD0, 0xFDF0)]
"""Noncharacters: no text that people or programs exchange should hold them."""


class Guard:
    """Hides marks from a tokenizer."""

    def __init__(self, marks: Iterable[str]) -> None:
        self._marks = re.compile("|".join(map(re.escape, sorted(marks, key=len, reverse=True))) or r"(?!)")

    def spaced(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> tuple[list[Any], list[Any], str]:
        """Messages and tools with a spacer in every mark, and the spacer. Raises ValueError if the text holds every spacer there is."""
        said = repr((messages, tools))
        spacer = next((one for one in _SPACERS if one not in said and ascii(one)[1:-1] not in said), None)
        if spacer is None:
            raise ValueError("the messages hold all of U+FDD0 to U+FDEF, which no text should")
        return [self._in(turn, spacer) for turn in messages], [self._in(tool, spacer) for tool in tools], spacer

    def _in(self, value: Any, spacer: str) -> Any:
        if isinstance(value, str):
            return self._marks.sub(lambda match: match[0][0] + spacer + match[0][1:], value)
        if isinstance(value, Mapping):
            return {self._in(key, spacer): self._in(inner, spacer) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._in(inner, spacer) for inner in value]
        return value
