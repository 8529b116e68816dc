"""The text a template puts behind an assistant turn: found by rendering one that says a sentinel.

Costs as much as the later messages are long, whatever came before them.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from gyre_hpc.chat.base import Message, ToolCall
from gyre_hpc.chat.guard import Guard
from gyre_hpc.chat.template import ChatTemplate
from gyre_hpc.chat.turns import Adaptation, adapted, as_dicts

_SAID = "what-the-recorded-answer-says"
_CALLED = "what-the-recorded-answer-calls"
_THOUGHT = "what-the-recorded-answer-thinks"


class SuffixText:
    """Renders suffixes of one template. `turn_ends`: tokens, as text, that end an assistant's turn."""

    def __init__(self, template: ChatTemplate, adaptation: Adaptation, turn_ends: Sequence[str]) -> None:
        self._template, self._adaptation = template, adaptation
        self._end = re.compile("|".join(map(re.escape, turn_ends)) or r"(?!)")

    def after(self, messages: Sequence[Message], guard: Guard | None = None) -> tuple[str, str, str]:
        """The token that ends the turn; all that follows it, generation prompt included; the guard's spacer. Raises ValueError."""
        text, spacer = self._render(messages, "", guard)
        # Some templates show either words or calls. Later messages may quote a sentinel, but come later.
        match = self._end.search(text, min(place for said in (_SAID, _CALLED) if (place := text.find(said)) >= 0))
        if match is None:
            raise ValueError("the chat template ends an assistant's turn with no token")
        return match[0], text[match.end() :], spacer

    def drops_thinking(self, messages: Sequence[Message]) -> bool:
        """Whether the template leaves out what the answer thought, now that these messages follow."""
        return _THOUGHT not in self._render(messages, _THOUGHT)[0]

    def _render(self, messages: Sequence[Message], reasoning: str, guard: Guard | None = None) -> tuple[str, str]:
        later = adapted(messages, self._adaptation, from_start=False)
        answered = []
        for message in later:
            if message.role != "tool":
                break
            name = "tool" if self._end.search(message.name) else message.name or "tool"
            answered.append(ToolCall(name=name, arguments=json.dumps({"said": _CALLED}), id=message.tool_call_id))
        answer = Message(role="assistant", content=_SAID, tool_calls=tuple(answered), reasoning=reasoning)
        turns: Sequence[Any] = as_dicts([Message(role="user", content="-"), answer, *later])
        spacer = ""
        if guard is not None:
            turns, _, spacer = guard.spaced(turns, ())
        text = self._template.render(turns, ())
        if _SAID not in text and _CALLED not in text:
            raise ValueError("the chat template leaves out what an assistant said")
        return text, spacer
