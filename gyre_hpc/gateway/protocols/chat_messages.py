"""Messages and tools of Chat Completions -> turns and function tools.

Several text parts of a message are joined by a newline; those of an assistant by nothing, because they are one text. A result
must answer a call that stands before it: templates and recorded contexts have no place for any other.
"""

from dataclasses import dataclass
from typing import Any

from gyre_hpc.chat.base import Message, ToolCall
from gyre_hpc.gateway.protocols.base import RequestError
from gyre_hpc.gateway.protocols.places import Misplaced, each, missing, string

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}


@dataclass(frozen=True, slots=True)
class Read:
    """A conversation that was read to its end."""

    raw: list[Any]
    turns: tuple[Message, ...]
    called: dict[str, str]
    """Call ids -> function."""


def read_messages(raw: Any, before: Read | None = None) -> Read:
    """`before`: what these messages begin with. Raises RequestError naming the field."""
    reading = _Reading(before)
    first = len(before.raw) if before is not None else 0
    try:
        if not isinstance(raw, list):
            raise Misplaced(missing(raw, "a list"))
        if not raw:
            raise Misplaced("give at least one message")
        each(reading.message, raw[first:], first)
    except Misplaced as error:
        raise told(error.within("messages")) from None
    # What was kept before serves on; its copy that came now is let go.
    kept = before.raw + raw[first:] if before is not None else raw
    return Read(kept, tuple(reading.turns), reading.called)


def to_tools(raw: Any) -> tuple[dict[str, Any], ...]:
    """Function tools; other kinds are refused. Raises RequestError naming the field."""
    tools: list[dict[str, Any]] = []
    try:
        if raw is not None:
            if not isinstance(raw, list):
                raise Misplaced("Input should be a list")
            each(lambda tool: tools.append(_tool(tool)), raw)
    except Misplaced as error:
        raise told(error.within("tools")) from None
    return tuple(tools)


def told(error: Misplaced) -> RequestError:
    """messages[3].content[0].type: ..."""
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.place).lstrip(".")
    return RequestError(f"{field}: {error.what}", field=field, code=error.code)


class _Reading:
    """One walk over the messages."""

    def __init__(self, before: Read | None) -> None:
        self.turns: list[Message] = list(before.turns) if before is not None else []
        self.called: dict[str, str] = dict(before.called) if before is not None else {}
        """Call ids so far -> function."""
        self._calls: list[ToolCall] = []
        self._texts: list[str] = []
        """What the parts of the present message have given."""

    def message(self, message: dict[str, Any]) -> None:
        wire_role = message.get("role")
        role = _ROLES.get(wire_role) if isinstance(wire_role, str) else None
        content = message.get("content")
        if role is None:
            raise Misplaced(f"{str(wire_role)[:40]!r}: use one of {', '.join(_ROLES)}", "role")
        if not isinstance(content, str):
            content = self._content(content, role)
        if role == "assistant":
            self._assistant(message, content)
        elif message.get("tool_calls"):
            raise Misplaced("only assistant messages have tool calls", "tool_calls")
        elif role == "tool":
            self._result(message, content)
        else:
            self.turns.append(Message(role=role, content=content))

    def _assistant(self, message: dict[str, Any], content: str) -> None:
        for name in ("function_call", "audio"):
            if message.get(name) is not None:
                raise Misplaced("not supported here", name, code="unsupported_value")
        reasoning = string(message, "reasoning_content") if message.get("reasoning_content") is not None else ""
        calls = message.get("tool_calls")
        if not calls:
            self.turns.append(Message(role="assistant", content=content, reasoning=reasoning))
            return
        self._calls = []
        try:
            if not isinstance(calls, list):
                raise Misplaced("Input should be a list")
            each(self._call, calls)
        except Misplaced as error:
            raise error.within("tool_calls") from None
        self.turns.append(Message(role="assistant", content=content, tool_calls=tuple(self._calls), reasoning=reasoning))

    def _call(self, call: dict[str, Any]) -> None:
        id, kind, function = string(call, "id"), call.get("type", "function"), call.get("function")
        if kind != "function":
            raise Misplaced(f"{str(kind)[:40]!r}: only function calls are known", "type", code="unsupported_content")
        if not isinstance(function, dict):
            raise Misplaced(missing(function, "an object"), "function")
        if self._calls and any(other.id == id for other in self._calls):
            raise Misplaced(f"{id[:80]!r} names another call of this message too", "id")
        try:
            name, arguments = string(function, "name"), "" if function.get("arguments") is None else string(function, "arguments")
        except Misplaced as error:
            raise error.within("function") from None
        self.called[id] = name
        self._calls.append(ToolCall(id=id, name=name, arguments=arguments))

    def _result(self, message: dict[str, Any], content: str) -> None:
        id = string(message, "tool_call_id")
        name = self.called.get(id)
        if name is None:
            raise Misplaced(f"{id[:80]!r} is no call of an assistant message before this one", "tool_call_id")
        self.turns.append(Message(role="tool", content=content, tool_call_id=id, name=name))

    def _content(self, content: Any, role: str) -> str:
        if content is None and role in ("assistant", "tool"):
            return ""
        self._texts = []
        try:
            if not isinstance(content, list):
                raise Misplaced(missing(content, "a string or a list of parts"))
            each(self._part, content)
        except Misplaced as error:
            raise error.within("content") from None
        return ("" if role == "assistant" else "\n").join(self._texts)

    def _part(self, part: dict[str, Any]) -> None:
        kind = part.get("type")
        if kind not in ("text", "refusal"):
            raise Misplaced(f"parts of type {str(kind)[:40]!r} are not supported here", code="unsupported_content")
        self._texts.append(string(part, kind))


def _tool(raw: dict[str, Any]) -> dict[str, Any]:
    kind, function = raw.get("type", "function"), raw.get("function")
    if kind != "function":
        raise Misplaced(f"{str(kind)[:40]!r}: only function tools are known", "type", code="unsupported_value")
    if not isinstance(function, dict):
        raise Misplaced(missing(function, "an object"), "function")
    try:
        if not string(function, "name"):
            raise Misplaced("give it a name", "name")
        if function.get("description") is not None:
            string(function, "description")
        parameters = function.get("parameters") or {}
        if not isinstance(parameters, dict):
            raise Misplaced("Input should be an object", "parameters")
        if not isinstance(parameters.get("properties", {}), dict):
            raise Misplaced("Input should be an object", "parameters", "properties")
    except Misplaced as error:
        raise error.within("function") from None
    return {"type": "function", "function": function | {"parameters": parameters}}
