"""Tools of the Responses API as function tools a chat format knows, and back: namespaces and free-form tools keep their place.

The model sees bare names; only where one request has the same name twice the namespaced one is called `<namespace>__<name>`.
A free-form (`custom`) tool becomes a function with one string argument `input`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from gyre_hpc.chat.base import ToolCall
from gyre_hpc.gateway.protocols.base import RequestError


@dataclass(frozen=True, kw_only=True, slots=True)
class WireTool:
    """One tool as the client named it."""

    raw: dict[str, Any]
    name: str
    namespace: str = ""
    where: str = ""
    """Field it stands in."""

    @property
    def is_custom(self) -> bool:
        return bool(self.raw["type"] == "custom")


class ToolTable:
    """The tools of one request, under the names the model sees."""

    def __init__(self, tools: Iterable[dict[str, Any]]) -> None:
        """Raises RequestError for hosted tools and for what is no tool."""
        wire = list(_flat(tools))
        names = Counter(tool.name for tool in wire)
        self._by_name: dict[str, WireTool] = {}
        for tool in wire:
            name = f"{tool.namespace}__{tool.name}" if tool.namespace and names[tool.name] > 1 else tool.name
            if name in self._by_name:
                raise RequestError(f"{tool.where}.name={name[:80]!r}: there are two tools of this name", field=f"{tool.where}.name")
            self._by_name[name] = tool
        self._names = {(tool.namespace, tool.name): name for name, tool in self._by_name.items()}

    def functions(self) -> tuple[dict[str, Any], ...]:
        """OpenAI function tools, in the order given."""
        return tuple({"type": "function", "function": _function(name, tool)} for name, tool in self._by_name.items())

    def model_name(self, namespace: str, name: str) -> str:
        """What the model calls it; tools that are gone keep their bare name."""
        return self._names.get((namespace, name), name)

    def wire(self, name: str) -> WireTool:
        """The client's tool of this name; names nobody offered are functions."""
        return self._by_name.get(name) or WireTool(raw={"type": "function"}, name=name)


def custom_input(call: ToolCall) -> str:
    """The text for a free-form tool: its argument, or all of the arguments when the model did not give them as asked."""
    try:
        given = orjson.loads(call.arguments)
    except orjson.JSONDecodeError:
        return call.arguments
    text = given.get("input") if isinstance(given, dict) else None
    return text if isinstance(text, str) else call.arguments


def custom_arguments(text: str) -> str:
    """Inverse of `custom_input`."""
    return orjson.dumps({"input": text}).decode()


def _flat(tools: Iterable[Any], namespace: str = "", within: str = "tools") -> Iterator[WireTool]:
    for place, tool in enumerate(tools):
        where = f"{within}[{place}]"
        kind = tool.get("type") if isinstance(tool, dict) else None
        if kind not in ("function", "custom", "namespace") or (kind == "namespace" and namespace):
            text = (
                f"{where}.type={str(kind)[:40]!r}: only function, custom and namespace tools are known; the harness must do the rest itself"
            )
            raise RequestError(text, field=f"{where}.type", code="unsupported_value")
        name = tool.get("name")
        if not isinstance(name, str) or not name:
            raise RequestError(f"{where}.name: give the tool a name", field=f"{where}.name")
        if kind == "namespace":
            yield from _flat(_list(tool.get("tools"), f"{where}.tools"), name, f"{where}.tools")
        else:
            yield WireTool(raw=_checked(tool, where), name=name, namespace=namespace, where=where)


def _checked(tool: dict[str, Any], where: str) -> dict[str, Any]:
    parameters = tool.get("parameters")
    if not isinstance(parameters, dict | None) or not isinstance((parameters or {}).get("properties", {}), dict):
        raise RequestError(f"{where}.parameters: give a JSON schema of an object", field=f"{where}.parameters")
    if not isinstance(tool.get("description"), str | None):
        raise RequestError(f"{where}.description: give a string", field=f"{where}.description")
    if not isinstance(tool.get("format"), dict | None):
        raise RequestError(f"{where}.format: give an object", field=f"{where}.format")
    return tool


def _function(name: str, tool: WireTool) -> dict[str, Any]:
    description, parameters = tool.raw.get("description"), tool.raw.get("parameters") or {}
    if tool.is_custom:
        asked = tool.raw.get("format") or {}
        if asked.get("definition"):
            description = f"{description or ''}\n\nThe input follows this {asked.get('syntax', '')} grammar:\n{asked['definition']}"
        parameters = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    return {"name": name} | ({"description": description} if description else {}) | {"parameters": parameters}


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise RequestError(f"{where}: give a list", field=where)
    return value
