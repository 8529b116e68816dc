"""Tools of Anthropic Messages -> function tools, and tools that are named in the conversation -> text.

A tool with `defer_loading` is not shown to the model until a `tool_reference` in a tool's result, or a `tool_addition` in a system
turn, names it. Its definition then stands there, as text: the prompt's first tokens stay what they were, so recorded ids
stay the context.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from gyre_hpc.gateway.protocols.base import RequestError


def wrong(where: str, what: str, code: str = "invalid_request") -> RequestError:
    """An error in Anthropic's manner: place, colon, reason."""
    return RequestError(f"{where}: {what}", field=where, code=code)


class Tools:
    """The tools of one request."""

    def __init__(self, raw: Any) -> None:
        if raw is None:
            raw = ()
        elif not isinstance(raw, list):
            raise wrong("tools", "Input should be a valid list")
        functions = [_function(tool, place) for place, tool in enumerate(raw)]
        self.shown = tuple(function for function, tool in zip(functions, raw, strict=True) if not tool.get("defer_loading"))
        """Function tools the model sees from the start."""
        self._known: Mapping[str, dict[str, Any]] = {function["function"]["name"]: function for function in functions}

    def reference(self, block: Mapping[str, Any], where: str) -> str:
        """Text in place of a tool_reference block."""
        return self._definition(block.get("tool_name"), f"{where}.tool_name")

    def change(self, block: Mapping[str, Any], where: str) -> str:
        """Text in place of a tool_addition or tool_removal block."""
        tool = block.get("tool")
        kind = tool.get("type") if isinstance(tool, dict) else None
        if not isinstance(tool, dict) or kind not in ("tool_reference", "tool_definition"):
            raise wrong(f"{where}.tool.type", f"{str(kind)[:40]!r} is not supported here; name a tool of `tools`", "unsupported_content")
        if block["type"] == "tool_removal":
            return f"Tool no longer available: {str(tool.get('name'))[:200]}"
        if kind == "tool_definition":
            definition = tool.get("definition")
            return _text(_function(definition, f"{where}.tool.definition"))
        return self._definition(tool.get("name"), f"{where}.tool.name")

    def _definition(self, name: Any, where: str) -> str:
        function = self._known.get(name) if isinstance(name, str) else None
        if function is None:
            raise wrong(where, f"Tool reference {str(name)[:80]!r} not found in available tools")
        return _text(function)


def _text(function: Mapping[str, Any]) -> str:
    return f"Tool available: {orjson.dumps(function).decode()}"


def _function(raw: Any, place: int | str) -> dict[str, Any]:
    where = place if isinstance(place, str) else f"tools.{place}"
    if not isinstance(raw, dict):
        raise wrong(where, "Input should be an object")
    if raw.get("type") not in (None, "custom"):
        text = f"{str(raw['type'])[:40]!r}: tools that run on the server are not supported here; leave it out"
        raise wrong(f"{where}.type", text, "unsupported_value")
    name, schema, description = raw.get("name"), raw.get("input_schema"), raw.get("description")
    if not isinstance(name, str) or not name:
        raise wrong(f"{where}.name", "Field required")
    if not isinstance(schema, dict):
        raise wrong(f"{where}.input_schema", "Field required" if schema is None else "Input should be an object")
    if not isinstance(schema.get("properties") or {}, dict):
        raise wrong(f"{where}.input_schema.properties", "Input should be an object")
    if schema.get("properties", schema) is None:
        schema = {key: value for key, value in schema.items() if key != "properties"}
    function: dict[str, Any] = {"name": name, "parameters": schema}
    if description is not None:
        if not isinstance(description, str):
            raise wrong(f"{where}.description", "Input should be a valid string")
        function = {"name": name, "description": description, "parameters": schema}
    return {"type": "function", "function": function}
