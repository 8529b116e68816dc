"""Conversations that a template is tried with: what was said before, one recorded answer, what came later."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gyre_hpc.chat.base import Message, ToolCall

TOOL_NAME = "look_around"
MID_SYSTEM = "a word from the system in mid-conversation"
TOOLS: tuple[dict[str, Any], ...] = (
    {
        "type": "function",
        "function": {
            "name": TOOL_NAME,
            "description": "Looks around.",
            "parameters": {"type": "object", "properties": {"where": {"type": "string"}}, "required": ["where"]},
        },
    },
)
LAST_WORDS = "so it is said"


@dataclass(frozen=True, kw_only=True, slots=True)
class Talk:
    """A conversation around one recorded answer."""

    name: str
    before: Sequence[Message]
    answer: Message
    later: Sequence[Message]
    tools: Sequence[dict[str, Any]] = ()

    @property
    def has_system_between(self) -> bool:
        return any(turn.role == "system" for turn in self.later)


def without_tools(thinks: bool) -> Iterator[Talk]:
    """Text alone. `thinks`: the template knows thinking."""
    for started, before in _BEFORE.items():
        for followed, later in _LATER.items():
            yield Talk(name=f"{started}, {followed}", before=before, answer=_said(), later=later)
            if thinks:
                yield Talk(name=f"{started}, thinking, {followed}", before=before, answer=_said(_THOUGHT), later=later)


def with_tools(thinks: bool) -> Iterator[Talk]:
    """Tools are offered, called, and answer."""
    for started, before in (_BEFORE | _BEFORE_WITH_CALLS).items():
        for followed, later in (_LATER | _RESULTS).items():
            calls = sum(turn.role == "tool" for turn in later)
            for thought in ("", _THOUGHT) if thinks else ("",):
                answer = _said(thought, *(f"call{place:05d}" for place in range(calls)))
                yield Talk(name=f"{started}, {followed}, tools", before=before, answer=answer, later=later, tools=TOOLS)


def _said(reasoning: str = "", *calls: str) -> Message:
    arguments = '{"where": "' + LAST_WORDS + '"}'
    tool_calls = tuple(ToolCall(name=TOOL_NAME, arguments=arguments, id=id) for id in calls)
    return Message(role="assistant", content="as I see it, " + LAST_WORDS, reasoning=reasoning, tool_calls=tool_calls)


def _result(place: int) -> Message:
    return Message(role="tool", content=f"result {place}", tool_call_id=f"call{place:05d}", name=TOOL_NAME)


_THOUGHT = "let me think"
_USER = Message(role="user", content="a first question")
_AGAIN = Message(role="user", content="another question")
_SYSTEM = Message(role="system", content="be brief")
_LATER_SYSTEM = Message(role="system", content=MID_SYSTEM)
_CALLED = Message(role="assistant", content="", tool_calls=(ToolCall(name=TOOL_NAME, arguments='{"where": "here"}', id="call00000"),))
_BEFORE = {
    "a question": (_USER,),
    "a system turn and a question": (_SYSTEM, _USER),
    "two questions": (_SYSTEM, _USER, Message(role="assistant", content="an answer"), _AGAIN),
}
_BEFORE_WITH_CALLS = {"a tool result": (_USER, _CALLED, _result(0))}
_LATER = {
    "a question": (_AGAIN,),
    "a system turn": (_LATER_SYSTEM, _AGAIN),
    "a question and a system turn": (_AGAIN, _LATER_SYSTEM),
    "an answer of somebody else": (_AGAIN, Message(role="assistant", content="not mine"), _USER),
}
_RESULTS = {
    "a tool result": (_result(0),),
    "two tool results": (_result(0), _result(1)),
    "a tool result and a question": (_result(0), _AGAIN),
    "a tool result and a system turn": (_result(0), _LATER_SYSTEM),
}
