"""Messages as templates want them: dicts of `transformers`' shape, and turns that a template refuses as turns it takes."""

import enum
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gyre_hpc.chat.base import Message, ToolCall


class Adaptation(enum.Enum):
    """What is changed so that a template takes system turns in mid-conversation. The first that works is taken."""

    none = "nothing is changed"
    later_system = "system turns after the first turn are shown as user turns"
    joined = "system turns after the first turn are shown as user turns, successive user turns as one"
    no_system = "system turns are shown as user turns, successive user turns as one"


def adapted(messages: Sequence[Message], how: Adaptation, *, from_start: bool) -> list[Message]:
    """`from_start`: the first of them is the conversation's first."""
    if how is Adaptation.none:
        return list(messages)
    turns: list[Message] = []
    for place, message in enumerate(messages):
        is_first = from_start and place == 0 and how is not Adaptation.no_system
        turn = replace(message, role="user") if message.role == "system" and not is_first else message
        if how is not Adaptation.later_system and turns and turn.role == turns[-1].role == "user":
            turns[-1] = replace(turns[-1], content=f"{turns[-1].content}\n\n{turn.content}")
        else:
            turns.append(turn)
    return turns


def as_dicts(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """One dict per message. A tool result without a name gets that of the call it answers, if that is among them."""
    names: dict[str, str] = {}
    dicts = []
    for message in messages:
        names |= {call.id: call.name for call in message.tool_calls}
        dicts.append(_as_dict(message, message.name or names.get(message.tool_call_id, "")))
    return dicts


def _as_dict(message: Message, name: str) -> dict[str, Any]:
    turn: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning:
        turn |= {"reasoning_content": message.reasoning, "thinking": message.reasoning}
    if message.tool_calls:
        turn["tool_calls"] = [_call(call) for call in message.tool_calls]
    if message.role == "tool":
        turn |= {key: value for key, value in (("tool_call_id", message.tool_call_id), ("name", name)) if value}
    return turn


def _call(call: ToolCall) -> dict[str, Any]:
    try:
        parsed = json.loads(call.arguments)
    except (ValueError, RecursionError):
        parsed = None
    arguments = parsed if isinstance(parsed, dict) else call.arguments
    identity = {"id": call.id} if call.id else {}
    return {"type": "function", **identity, "function": {"name": call.name, "arguments": arguments}}
