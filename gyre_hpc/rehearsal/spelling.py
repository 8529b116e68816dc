"""What the scripted model says -> output ids. Deliberately not the ids that a tokenizer would make of the text.

A tokenizer gives one spelling of a text, a model any. Ids that are only ever those of the tokenizer would hide an answer that
was decoded and encoded again; so text is cut in the middle of words and the pieces are encoded apart.
"""

import re

from gyre_hpc.chat.base import ChatFormat
from gyre_hpc.rehearsal.script import Turn

_PIECE = 5
"""Characters; words of a vocabulary are often longer."""
_ENDLESS = " and so on"


class Spelling:
    """One chat format's way to write answers."""

    def __init__(self, chat_format: ChatFormat) -> None:
        self._format = chat_format
        marks = sorted(chat_format.tokenizer.special, key=len, reverse=True)
        self._marks = re.compile("(" + "|".join(map(re.escape, marks)) + ")")

    def ids(self, turn: Turn, *, longest: int) -> list[int]:
        """At most `longest` ids, a stop id last unless the answer is endless."""
        text = self._written(turn)
        if turn.say.is_endless:
            return (self._odd(text) + self._odd(_ENDLESS) * longest)[:longest]
        return [*self._odd(text), self._format.stop_ids[0]]

    def _written(self, turn: Turn) -> str:
        calls = [self._call(name, arguments) for name, arguments in turn.calls]
        if turn.say.broken:
            calls.append(f"<tool_call>{turn.say.broken}</tool_call>")
        thought = f"<think>\n{turn.say.thinking}\n</think>\n\n" if turn.say.thinking else ""
        separator = "" if self._is_tight else "\n"
        return thought + turn.text + (separator if calls and not self._is_tight else "") + separator.join(calls)

    @property
    def _is_tight(self) -> bool:
        """The drill format takes nothing between calls."""
        return self._format.name == "drill"

    def _call(self, name: str, arguments: str) -> str:
        if self._is_tight:
            return f'<tool_call>{{"name":"{name}","arguments":{arguments}}}</tool_call>'
        return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'

    def _odd(self, text: str) -> list[int]:
        ids: list[int] = []
        for piece in self._marks.split(text):
            if piece in self._format.tokenizer.special:
                ids.append(self._format.tokenizer.special[piece])
            else:
                for start in range(0, len(piece), _PIECE):
                    ids += self._format.tokenizer.encode(piece[start : start + _PIECE])
        return ids
