"""The `drill` chat format: ChatML over the drill tokenizer, for small models that work in a shell.

    <|im_start|>system\\n...\\n<tools>shell(command)</tools><|im_end|>\\n<|im_start|>user\\n...<|im_end|>\\n<|im_start|>assistant\\n

Every turn is rendered on its own, so a longer history always extends a shorter one. An answer is free text followed by tool
calls without anything between or after them; what deviates by one character is malformed (parsers/drill_calls.py). Content is
tokenised without marks: no file or tool output can open or close a turn. It knows no thinking: what a message thought is not shown.
"""

from collections.abc import Sequence
from typing import Any

from gyre_hpc.chat.base import Answer, ChatFormat, Message, Reader, ToolCall
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
from gyre_hpc.chat.parsers.drill_calls import DrillCalls
from gyre_hpc.chat.reader import StreamReader


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
        reader = self.reader(stop=stop, tools=tools)
        answer = reader.feed(ids)
        return answer if partial else reader.finish()

    def reader(self, *, stop: Sequence[str] = (), tools: Sequence[dict[str, Any]] = ()) -> Reader:
        return StreamReader(
            self.tokenizer.stream(),
            DrillCalls(),
            stop_ids=self.stop_ids,
            thinks=False,
            thinking_begun=False,
            stop=stop,
            tools=tools,
        )

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


def _signature(tool: dict[str, Any]) -> str:
    function = tool["function"]
    properties = function.get("parameters", {}).get("properties", {})
    return f"{function['name']}({','.join(properties)})"
