"""Input items of the Responses API -> turns. What belongs to one answer of the model becomes one assistant turn again.

Items of one answer are known by their ids (which name the call) or, from clients that drop ids, by their order: reasoning,
then text, then tool calls, with nothing between them. A finished message that a client kept and got once more (Codex after
a broken stream) is one turn.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gyre_hpc.chat.base import Message, ToolCall
from gyre_hpc.gateway.protocols.base import RequestError
from gyre_hpc.gateway.protocols.responses_ids import Handles, call_of
from gyre_hpc.gateway.protocols.responses_tools import ToolTable, custom_arguments

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_TEXT_PARTS = ("input_text", "output_text", "text")


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

    def __init__(self, tools: ToolTable, handles: Handles, execution: str) -> None:
        self._tools, self._handles, self._execution = tools, handles, execution
        self._turns: list[Message | _Turn] = []
        self._answer: _Turn | None = None
        """The newest assistant turn, as long as at most results of tools follow it."""
        self._called: dict[str, str] = {}
        """Names of tools by the ids of their calls."""

    def messages(self) -> tuple[Message, ...]:
        return tuple(turn.message() if isinstance(turn, _Turn) else turn for turn in self._turns)

    def add(self, item: Any, where: str) -> None:
        """Raises RequestError naming the field."""
        if not isinstance(item, dict):
            raise RequestError(f"{where}: give an object", field=where)
        if self._answer is not None and self._answer.call and item in self._answer.items:
            return
        match item.get("type", "message"):
            case "message":
                self._message(item, where)
            case "reasoning":
                self._reasoning(item, where)
            case "function_call":
                self._call(item, where, _text(item, "arguments", where))
            case "custom_tool_call":
                self._call(item, where, custom_arguments(_text(item, "input", where)))
            case "function_call_output" | "custom_tool_call_output":
                self._output(item, where)
            case kind:
                text = (
                    f"{where}.type={str(kind)[:40]!r}: this kind of item is not supported here; give messages, calls and outputs themselves"
                )
                raise RequestError(text, field=f"{where}.type", code="unsupported_value")

    def _message(self, item: dict[str, Any], where: str) -> None:
        role = item.get("role")
        if not isinstance(role, str) or role not in _ROLES:
            raise RequestError(f"{where}.role={str(role)[:40]!r}: use one of {', '.join(_ROLES)}", field=f"{where}.role")
        text = content_text(item.get("content"), f"{where}.content")
        if role != "assistant":
            self._turns.append(Message(role=_ROLES[role], content=text))
            self._answer = None
            return
        self._turn(item, _origin(item), "text").text = text

    def _reasoning(self, item: dict[str, Any], where: str) -> None:
        call = _origin(item)
        if handle := _optional(item, "encrypted_content", where):
            call = self._handles.call(handle, self._execution, f"{where}.encrypted_content")
        parts = item.get("content") or item.get("summary") or []
        self._turn(item, call, "reasoning").reasoning.append(
            content_text(parts, f"{where}.content", ("reasoning_text", "summary_text", "text"))
        )

    def _call(self, item: dict[str, Any], where: str, arguments: str) -> None:
        id, name = _named(item, "call_id", where), _named(item, "name", where)
        name = self._tools.model_name(_optional(item, "namespace", where), name)
        self._called[id] = name
        self._turn(item, call_of(id) or _origin(item), "call").calls.append(ToolCall(id=id, name=name, arguments=arguments))

    def _output(self, item: dict[str, Any], where: str) -> None:
        id = _named(item, "call_id", where)
        text = content_text(item.get("output"), f"{where}.output")
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


def content_text(content: Any, where: str, kinds: Sequence[str] = _TEXT_PARTS) -> str:
    """A string, or parts that are text. Raises RequestError for images, files and the like."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise RequestError(f"{where}: give a string or a list of parts", field=where)
    pieces = []
    for place, part in enumerate(content):
        kind, text = (part.get("type"), part.get("text")) if isinstance(part, dict) else (None, None)
        if kind not in kinds or not isinstance(text, str):
            field = f"{where}[{place}]"
            raise RequestError(f"{field}.type={str(kind)[:40]!r}: only text parts are known", field=field, code="unsupported_content")
        pieces.append(text)
    return "".join(pieces)


def _origin(item: dict[str, Any]) -> str:
    id = item.get("id")
    return call_of(id) if isinstance(id, str) else ""


def _text(item: dict[str, Any], name: str, where: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise RequestError(f"{where}.{name}: give a string", field=f"{where}.{name}")
    return value


def _named(item: dict[str, Any], name: str, where: str) -> str:
    value = _text(item, name, where)
    if not value:
        raise RequestError(f"{where}.{name}: must not be empty", field=f"{where}.{name}")
    return value


def _optional(item: dict[str, Any], name: str, where: str) -> str:
    return "" if item.get(name) is None else _text(item, name, where)
