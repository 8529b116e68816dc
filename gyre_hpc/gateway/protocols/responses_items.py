"""Input items of the Responses API -> turns. What belongs to one answer of the model becomes one assistant turn again.

Items of one answer are known by their ids (which name the call) or, from clients that drop ids, by their order: reasoning,
then text, then tool calls, with nothing between them. A finished message that a client kept and got once more (Codex after
a broken stream) is one turn. Text parts of others than the assistant are joined by a newline; its own are one text.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gyre_hpc.chat.base import Message, ToolCall
from gyre_hpc.gateway.protocols.places import Misplaced, each, missing, string
from gyre_hpc.gateway.protocols.responses_ids import Handles, call_of
from gyre_hpc.gateway.protocols.responses_tools import ToolTable, custom_arguments

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_TEXT_PARTS = frozenset(["input_text", "output_text", "text"])
_REASONING_PARTS = frozenset(["reasoning_text", "summary_text", "text"])


@dataclass(slots=True)
class _Turn:
    """An assistant turn that may still grow."""

    call: str
    """Call it is known to be the answer of; empty if nothing tells."""
    reasoning: list[str] = field(default_factory=list)
    text: str | None = None
    calls: list[ToolCall] = field(default_factory=list)
    items: list[dict[str, Any]] = field(default_factory=list)
    """What it was put together from."""

    def has_room(self, kind: str) -> bool:
        """Its order allows one more of this kind."""
        return kind == "call" or (not self.calls and self.text is None)

    def message(self) -> Message:
        return Message(role="assistant", content=self.text or "", tool_calls=tuple(self.calls), reasoning="".join(self.reasoning))


class Turns:
    """Collects the turns of one request."""

    def __init__(self, tools: ToolTable, handles: Handles, execution: str, *, goes_on: bool) -> None:
        """`goes_on`: from an earlier response, so results may answer calls that are not among the items."""
        self._tools, self._handles, self._execution, self._goes_on = tools, handles, execution, goes_on
        self._turns: list[Message | _Turn] = []
        self._answer: _Turn | None = None
        """The newest assistant turn, as long as at most results of tools follow it."""
        self._called: dict[str, str] = {}
        """Names of tools by the ids of their calls."""
        self._readers: dict[str, Callable[[dict[str, Any]], None]] = {
            "message": self._message,
            "reasoning": self._reasoning,
            "function_call": self._function_call,
            "custom_tool_call": self._custom_call,
            "function_call_output": self._output,
            "custom_tool_call_output": self._output,
        }

    def messages(self) -> tuple[Message, ...]:
        return tuple(turn.message() if isinstance(turn, _Turn) else turn for turn in self._turns)

    def read(self, items: Sequence[Any]) -> None:
        """Raises Misplaced."""
        each(self._item, items)

    def _item(self, item: dict[str, Any]) -> None:
        if self._answer is not None and self._answer.call and item in self._answer.items:
            return
        kind = item.get("type", "message")
        reader = self._readers.get(kind) if isinstance(kind, str) else None
        if reader is None:
            text = f"{str(kind)[:40]!r}: this kind of item is not supported here; give messages, calls and outputs themselves"
            raise Misplaced(text, "type", code="unsupported_value")
        reader(item)

    def _message(self, item: dict[str, Any]) -> None:
        role = item.get("role")
        if not isinstance(role, str) or role not in _ROLES:
            raise Misplaced(f"{str(role)[:40]!r}: use one of {', '.join(_ROLES)}", "role")
        text = _text(item, "content", joint="" if role == "assistant" else "\n")
        if role != "assistant":
            self._turns.append(Message(role=_ROLES[role], content=text))
            self._answer = None
            return
        self._turn(item, _origin(item), "text").text = text

    def _reasoning(self, item: dict[str, Any]) -> None:
        call = _origin(item)
        if handle := _optional(item, "encrypted_content"):
            try:
                call = self._handles.call(handle, self._execution)
            except ValueError as error:
                raise Misplaced(str(error), "encrypted_content", code="invalid_encrypted_content") from None
        field = "content" if item.get("content") else "summary"
        text = _text(item, field, _REASONING_PARTS, joint="") if item.get(field) else ""
        self._turn(item, call, "reasoning").reasoning.append(text)

    def _function_call(self, item: dict[str, Any]) -> None:
        self._call(item, string(item, "arguments"))

    def _custom_call(self, item: dict[str, Any]) -> None:
        self._call(item, custom_arguments(string(item, "input")))

    def _call(self, item: dict[str, Any], arguments: str) -> None:
        id, name = _named(item, "call_id"), _named(item, "name")
        name = self._tools.model_name(_optional(item, "namespace"), name)
        if id in self._called:
            raise Misplaced(f"{id[:80]!r} names another call too", "call_id")
        self._called[id] = name
        self._turn(item, call_of(id) or _origin(item), "call").calls.append(ToolCall(id=id, name=name, arguments=arguments))

    def _output(self, item: dict[str, Any]) -> None:
        id, text = _named(item, "call_id"), _text(item, "output")
        if id not in self._called and not self._goes_on:
            raise Misplaced(f"No tool call found for function call output with call_id {id[:80]}.", "call_id")
        self._turns.append(Message(role="tool", content=text, tool_call_id=id, name=self._called.get(id, "")))

    def _turn(self, item: dict[str, Any], call: str, kind: str) -> _Turn:
        """The assistant turn an item of this call belongs to."""
        answer = self._answer
        if answer is None or not answer.has_room(kind) or not self._may_join(answer, call):
            self._answer = answer = _Turn(call)
            self._turns.append(answer)
        answer.call = answer.call or call
        answer.items.append(item)
        return answer

    def _may_join(self, answer: _Turn, call: str) -> bool:
        """Ids say it, or, where they say nothing, nothing stands between."""
        return answer.call == call if answer.call and call else self._turns[-1] is answer


def _text(item: dict[str, Any], field: str, kinds: frozenset[str] = _TEXT_PARTS, joint: str = "\n") -> str:
    """A string, or parts that are text; images, files and the like are none."""
    content = item.get(field)
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise Misplaced(missing(content, "a string or a list of parts"), field)
    for place, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if not isinstance(kind, str) or kind not in kinds or not isinstance(part.get("text"), str):
            text = f"{str(kind)[:40]!r} without a text: only text parts are known"
            raise Misplaced(text, field, place, code="unsupported_content")
    return joint.join([part["text"] for part in content])


def _origin(item: dict[str, Any]) -> str:
    id = item.get("id")
    return call_of(id) if isinstance(id, str) else ""


def _named(item: dict[str, Any], name: str) -> str:
    value = string(item, name)
    if not value:
        raise Misplaced("must not be empty", name)
    return value


def _optional(item: dict[str, Any], name: str) -> str:
    return "" if item.get(name) is None else string(item, name)
