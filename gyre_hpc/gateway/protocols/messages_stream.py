"""Events of a streamed Anthropic message: blocks are opened, filled and closed one after another, with rising indexes.

A keep-alive is an empty delta of the open block, because clients do not count pings (Claude Code 2.1.220 and 2.1.332). Before there
is anything to say, a text block is opened for it; if the answer then begins with thinking or a tool, that block is closed empty,
and Claude Code drops it from its history.
"""

from typing import Any

import orjson

from gyre_hpc.gateway.protocols.base import ChatRequest, Finished, Head, RequestError, Stream
from gyre_hpc.gateway.protocols.messages_answer import input_text, message, shows_thinking, stop, tool_use, usage
from gyre_hpc.gateway.protocols.messages_errors import error_body
from gyre_hpc.gateway.protocols.messages_thinking import sign


class MessageStream(Stream):
    """One streamed message."""

    def __init__(self, head: Head, asked: ChatRequest) -> None:
        self._head = head
        self._shown = shows_thinking(asked)
        self._index, self._open = 0, ""
        """Index and kind of the open block, or of the next one when `_open` is empty."""
        self._thought, self._text = "", ""

    def opening(self) -> bytes:
        return _event({"type": "message_start", "message": message(self._head, [], usage(None), stop(None))})

    def keep_alive(self) -> bytes:
        return (b"" if self._open else self._begin("text")) + self._delta({"type": f"{self._open}_delta", self._open: ""})

    def reasoning(self, text: str) -> bytes:
        events = self._begin("thinking")
        self._thought += text
        return events + (self._delta({"type": "thinking_delta", "thinking": text}) if self._shown else b"")

    def text(self, text: str) -> bytes:
        events = self._begin("text")
        self._text += text
        return events + self._delta({"type": "text_delta", "text": text})

    def closing(self, finished: Finished) -> bytes:
        answer, events = finished.answer, list[bytes]()
        if rest := answer.reasoning[len(self._thought) :]:
            events.append(self.reasoning(rest))
        if rest := answer.content[len(self._text) :]:
            events.append(self.text(rest))
        events.append(self._end())
        for call in answer.tool_calls:
            events.append(self._start(tool_use(call)))
            events.append(self._delta({"type": "input_json_delta", "partial_json": input_text(call.arguments)}) + self._end())
        events.append(_event({"type": "message_delta", "delta": stop(finished), "usage": usage(finished.usage)}))
        return b"".join([*events, _event({"type": "message_stop"})])

    def error(self, error: RequestError) -> bytes:
        return b"event: error\ndata: " + error_body(error) + b"\n\n"

    def _begin(self, kind: str) -> bytes:
        if self._open == kind:
            return b""
        empty: dict[str, Any] = {"type": kind, kind: ""}
        return self._end() + self._start(empty | {"signature": ""} if kind == "thinking" else empty)

    def _start(self, block: dict[str, Any]) -> bytes:
        self._open = block["type"]
        return _event({"type": "content_block_start", "index": self._index, "content_block": block})

    def _end(self) -> bytes:
        if not self._open:
            return b""
        events = b""
        if self._open == "thinking":
            signature = sign(self._head.call, self._thought, shown=self._shown)
            events = self._delta({"type": "signature_delta", "signature": signature})
        events += _event({"type": "content_block_stop", "index": self._index})
        self._index, self._open = self._index + 1, ""
        return events

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return _event({"type": "content_block_delta", "index": self._index, "delta": delta})


def _event(value: dict[str, Any]) -> bytes:
    return b"event: " + value["type"].encode() + b"\ndata: " + orjson.dumps(value) + b"\n\n"
