"""Events of a streamed response, numbered from 0.

    created, in_progress
    output_item.added(reasoning)  content_part.added  reasoning_text.delta*  reasoning_text.done  content_part.done  output_item.done
    output_item.added(message)    content_part.added  output_text.delta*     output_text.done     content_part.done  output_item.done
    per tool call: output_item.added  function_call_arguments.delta  .done  output_item.done   (custom_tool_call_input for free-form tools)
    completed | incomplete | failed

Keep-alive is `response.in_progress` once more: Codex counts events, not comments (tried over 420 s of silence).
"""

from typing import Any

import orjson

from gyre_hpc.chat.base import ToolCall
from gyre_hpc.gateway.protocols.base import Finished, RequestError, Stream
from gyre_hpc.gateway.protocols.responses_body import LOGPROBS
from gyre_hpc.gateway.protocols.responses_errors import reworded
from gyre_hpc.gateway.protocols.responses_ids import Handles
from gyre_hpc.gateway.protocols.responses_object import Given, Items, has_message, output_text, response, status_of


class ResponseStream(Stream):
    """One streamed response."""

    def __init__(self, given: Given, handles: Handles) -> None:
        self._given, self._items = given, Items(given, handles)
        self._number = 0
        self._index = 0
        """Output index of the item that is open, or of the next one."""
        self._open = ""
        """reasoning or text: kind of the item that is open."""
        self._said = ""
        """Text of the open item."""
        self._item_id = ""
        self._output: list[dict[str, Any]] = []
        self._begun = orjson.Fragment(orjson.dumps(response(given, "in_progress", [])))

    def opening(self) -> bytes:
        return self._event("response.created", response=self._begun) + self._event("response.in_progress", response=self._begun)

    def keep_alive(self) -> bytes:
        return self._event("response.in_progress", response=self._begun)

    def reasoning(self, text: str) -> bytes:
        events = b"" if self._open else self._begin("reasoning", self._items.reasoning(None), {"type": "reasoning_text", "text": ""})
        return events + self._say("response.reasoning_text.delta", text)

    def text(self, text: str) -> bytes:
        events = self._end_reasoning()
        if not self._open:
            events += self._begin("text", self._items.message(None, "in_progress"), output_text(""))
        return events + self._say("response.output_text.delta", text, logprobs=[])

    def closing(self, finished: Finished) -> bytes:
        answer, events = finished.answer, list[bytes]()
        if self._open != "text":
            rest = answer.reasoning[len(self._said) :]
            events.append((self.reasoning(rest) if rest else b"") + self._end_reasoning())
        if has_message(finished):
            said = len(self._said) if self._open == "text" else 0
            rest = answer.content[said:]
            events.append(self.text(rest) if rest or self._open != "text" else b"")
            events.append(self._end_text(finished))
        events += [self._tool_call(call, place) for place, call in enumerate(answer.tool_calls)]
        status = status_of(finished)
        return b"".join([*events, self._event(f"response.{status}", response=response(self._given, status, self._output, finished.usage))])

    def error(self, error: RequestError) -> bytes:
        return self._event("response.failed", response=response(self._given, "failed", self._output, error=reworded(error)))

    def _end_reasoning(self) -> bytes:
        if self._open != "reasoning":
            return b""
        part = {"type": "reasoning_text", "text": self._said}
        done = self._about("response.reasoning_text.done", text=self._said) + self._about("response.content_part.done", part=part)
        return done + self._end(self._items.reasoning(self._said))

    def _end_text(self, finished: Finished) -> bytes:
        logprobs = finished.logprobs if LOGPROBS in (self._given.request.get("include") or ()) else ()
        item = self._items.message(self._said, status_of(finished), logprobs)
        part = item["content"][0]
        done = self._about("response.output_text.done", text=self._said, logprobs=part["logprobs"])
        return done + self._about("response.content_part.done", part=part) + self._end(item)

    def _tool_call(self, call: ToolCall, place: int) -> bytes:
        item = self._items.tool_call(call, place)
        events = self._event("response.output_item.added", output_index=self._index, item=self._items.tool_call(call, place, "in_progress"))
        kind = "input" if item["type"] == "custom_tool_call" else "arguments"
        name = "response.custom_tool_call_input" if kind == "input" else "response.function_call_arguments"
        where = {"item_id": item["id"], "output_index": self._index}
        events += self._event(f"{name}.delta", **where, delta=item[kind])
        named = {} if kind == "input" else {"name": item["name"]}
        return events + self._event(f"{name}.done", **where, **named, **{kind: item[kind]}) + self._end(item)

    def _begin(self, kind: str, item: dict[str, Any], part: dict[str, Any]) -> bytes:
        self._open, self._said, self._item_id = kind, "", item["id"]
        return self._event("response.output_item.added", output_index=self._index, item=item) + self._about(
            "response.content_part.added", part=part
        )

    def _say(self, name: str, text: str, **more: Any) -> bytes:
        self._said += text
        return self._about(name, delta=text, **more)

    def _end(self, item: dict[str, Any]) -> bytes:
        self._output.append(item)
        self._open, self._said = "", ""
        self._index += 1
        return self._event("response.output_item.done", output_index=self._index - 1, item=item)

    def _about(self, name: str, /, **fields: Any) -> bytes:
        """An event about the only part of the open item."""
        return self._event(name, item_id=self._item_id, output_index=self._index, content_index=0, **fields)

    def _event(self, name: str, /, **fields: Any) -> bytes:
        number, self._number = self._number, self._number + 1
        return b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps({"type": name, "sequence_number": number} | fields))
