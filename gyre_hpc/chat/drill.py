"""The `drill` chat format: ChatML over the drill tokenizer, for small models that work in a shell.

    <|im_start|>system\\n...\\n<tools>shell(command)</tools><|im_end|>\\n<|im_start|>user\\n...<|im_end|>\\n<|im_start|>assistant\\n

Every turn is rendered on its own, so a longer history always extends a shorter one. An answer is free text followed by tool
calls without anything between or after them; what deviates by one character is malformed. Content is tokenised without marks: no file or tool output can open or close a turn.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from gyre_hpc.chat.base import Answer, ChatFormat, Malformed, Message, ToolCall, cut_at_stop, without_half_mark
from gyre_hpc.chat.drill_tokenizer import DrillTokenizer
from gyre_hpc.chat.drill_vocabulary import (
    PAD,
    SHELL_CALL_CLOSE,
    SHELL_CALL_OPEN,
    TOOL_CALL_CLOSE,
    TOOL_CALL_OPEN,
    TOOLS_CLOSE,
    TOOLS_OPEN,
    TURN_CLOSE,
    turn_open,
)

_CALL = re.compile(r'\{"name":"([A-Za-z0-9_.-]+)","arguments":(\{.*\})\}', re.DOTALL)


class DrillFormat(ChatFormat):
    """Tokenizer, template and parser of `drill`."""

    name = "drill"

    def __init__(self) -> None:
        self.tokenizer: DrillTokenizer = DrillTokenizer()
        self.stop_ids = (self.tokenizer.special[TURN_CLOSE], self.tokenizer.special[PAD])

    def render(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> list[int]:
        turns = list(messages)
        if tools and (not turns or turns[0].role != "system"):
            turns.insert(0, Message(role="system"))
        ids: list[int] = []
        for place, message in enumerate(turns):
            ids += self._turn(message, first=place == 0, tools=tools if place == 0 else ())
        return ids + self._mark(turn_open("assistant", first=not turns))

    def render_suffix(self, messages: Sequence[Message], *, ended: bool, thought: bool = True) -> list[int]:
        ids = [] if ended else self._mark(TURN_CLOSE)
        for message in messages:
            ids += self._turn(message, first=False, tools=())
        return ids + self._mark(turn_open("assistant", first=False))

    def parse(self, ids: Sequence[int], *, stop: Sequence[str] = (), partial: bool = False, tools: Sequence[dict[str, Any]] = ()) -> Answer:
        end = len(ids) - 1 if ids and ids[-1] in self.stop_ids else len(ids)
        text, stopped_by = cut_at_stop(self.tokenizer.decode(ids[:end]), stop)
        content, opened, rest = text.partition(TOOL_CALL_OPEN)
        if partial:
            certain = content if opened or stopped_by else without_half_mark(content, (TOOL_CALL_OPEN, *stop))
            return Answer(content=certain, stopped_by=stopped_by)
        if not opened:
            return Answer(content=content, stopped_by=stopped_by)
        calls = _parse_calls(rest)
        if calls is not None:
            return Answer(content=content, tool_calls=calls, stopped_by=stopped_by)
        start = next(place for place in range(end) if self.tokenizer.decode(ids[: place + 1]).startswith(content + opened))
        reason = 'write <tool_call>{"name":"...","arguments":{...}}</tool_call> and nothing after it'
        bad = Malformed(raw=opened + rest, start=start, end=end, reason=reason)
        return Answer(content=content, malformed=(bad,), stopped_by=stopped_by)

    def _turn(self, message: Message, *, first: bool, tools: Sequence[dict[str, Any]]) -> list[int]:
        plain = self.tokenizer.encode_plain
        ids = self._mark(turn_open(message.role, first=first)) + plain(message.content)
        if tools:
            ids += self._mark(TOOLS_OPEN) + plain(" ".join(map(_signature, tools))) + self._mark(TOOLS_CLOSE)
        for call in message.tool_calls:
            ids += self._call(call)
        return ids + self._mark(TURN_CLOSE)

    def _call(self, call: ToolCall) -> list[int]:
        text = f'{TOOL_CALL_OPEN}{{"name":"{call.name}","arguments":{call.arguments}}}{TOOL_CALL_CLOSE}'
        opening, closing = TOOL_CALL_OPEN, TOOL_CALL_CLOSE
        if text.startswith(SHELL_CALL_OPEN) and text.endswith(SHELL_CALL_CLOSE) and len(text) >= len(SHELL_CALL_OPEN + SHELL_CALL_CLOSE):
            opening, closing = SHELL_CALL_OPEN, SHELL_CALL_CLOSE
        inner = text[len(opening) : len(text) - len(closing)]
        return self._mark(opening) + self.tokenizer.encode_plain(inner) + self._mark(closing)

    def _mark(self, text: str) -> list[int]:
        return self.tokenizer.encode(text)


def _parse_calls(rest: str) -> tuple[ToolCall, ...] | None:
    """The calls in what follows the first opening mark, or None when it is not calls and nothing else."""
    if not rest.endswith(TOOL_CALL_CLOSE):
        return None
    calls = []
    for body in rest[: -len(TOOL_CALL_CLOSE)].split(TOOL_CALL_CLOSE + TOOL_CALL_OPEN):
        match = _CALL.fullmatch(body)
        if match is None or not _is_object(match[2]):
            return None
        calls.append(ToolCall(name=match[1], arguments=match[2]))
    return tuple(calls)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _signature(tool: dict[str, Any]) -> str:
    function = tool["function"]
    properties = function.get("parameters", {}).get("properties", {})
    return f"{function['name']}({','.join(properties)})"
