"""Messages and tools of Chat Completions -> turns and function tools."""

from typing import Any

import msgspec

from gyre_hpc.chat.base import Message, ToolCall
from gyre_hpc.gateway.protocols.base import RequestError

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}


class WireFunction(msgspec.Struct):
    name: str
    arguments: str = ""


class WireToolCall(msgspec.Struct):
    id: str
    function: WireFunction
    type: str = "function"


class WireMessage(msgspec.Struct):
    role: str
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[WireToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None


class WireToolFunction(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class WireTool(msgspec.Struct):
    function: WireToolFunction
    type: str = "function"


def to_message(wire: WireMessage, place: int) -> Message:
    """Raises RequestError naming the field."""
    where = f"messages[{place}]"
    role = _ROLES.get(wire.role)
    if role is None:
        raise RequestError(f"{where}.role={wire.role[:40]!r}: use one of {', '.join(_ROLES)}", field=f"{where}.role")
    if role == "tool" and not wire.tool_call_id:
        raise RequestError(f"{where}.tool_call_id: name the call this message answers", field=f"{where}.tool_call_id")
    calls = wire.tool_calls or ()
    if calls and role != "assistant":
        raise RequestError(f"{where}.tool_calls: only assistant messages have tool calls", field=f"{where}.tool_calls")
    return Message(
        role=role,
        content=_text(wire.content, where),
        tool_calls=tuple(ToolCall(id=call.id, name=call.function.name, arguments=call.function.arguments) for call in calls),
        tool_call_id=(wire.tool_call_id or "") if role == "tool" else "",
        reasoning=(wire.reasoning_content or "") if role == "assistant" else "",
    )


def to_tool(raw: dict[str, Any]) -> dict[str, Any]:
    """A function tool, checked before; other kinds are refused."""
    if raw.get("type", "function") != "function":
        raise RequestError(f"tools[].type={str(raw['type'])[:40]!r}: only function tools are known", field="tools")
    parameters = raw["function"].get("parameters") or {}
    properties = parameters.get("properties", {})
    if not isinstance(properties, dict):
        raise RequestError("tools[].function.parameters.properties: give an object", field="tools")
    return {"type": "function", "function": raw["function"] | {"parameters": parameters}}


def _text(content: str | list[dict[str, Any]] | None, where: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    pieces = []
    for place, part in enumerate(content):
        kind, text = part.get("type"), part.get("text")
        if kind != "text" or not isinstance(text, str):
            field = f"{where}.content[{place}]"
            raise RequestError(f"{field}.type={str(kind)[:40]!r}: only text parts are known", field=field, code="unsupported_content")
        pieces.append(text)
    return "".join(pieces)
