"""Tools of Anthropic Messages -> function tools, and tools that are named in the conversation -> text.

A tool with `defer_loading` is not shown to the model until a `tool_reference` in a tool's result, or a `tool_addition` in a system
turn, names it. Its definition then stands there, as text: the prompt's first tokens stay what they were, so recorded ids
stay the context.
"""

from collections.abc import Mapping
from typing import Any

from gyre_hpc.gateway.protocols.json_body import encoded
from gyre_hpc.gateway.protocols.places import Misplaced, each, missing


class Tools:
    """The tools of one request."""

    def __init__(self, raw: Any) -> None:
        """Raises Misplaced."""
        self._known: dict[str, dict[str, Any]] = {}
        self._shown: list[dict[str, Any]] = []
        if raw is not None:
            if not isinstance(raw, list):
                raise Misplaced("Input should be a valid list")
            each(self._add, raw)
        self.shown = tuple(self._shown)
        """Function tools the model sees from the start."""

    def reference(self, block: Mapping[str, Any]) -> str:
        """Text in place of a tool_reference block."""
        return self._definition(block.get("tool_name"), "tool_name")

    def change(self, block: Mapping[str, Any]) -> str:
        """Text in place of a tool_addition or tool_removal block."""
        tool = block.get("tool")
        kind = tool.get("type") if isinstance(tool, dict) else None
        if not isinstance(tool, dict) or kind not in ("tool_reference", "tool_definition"):
            raise Misplaced(f"{str(kind)[:40]!r} is not supported here; name a tool of `tools`", "tool", "type", code="unsupported_content")
        if block["type"] == "tool_removal":
            return f"Tool no longer available: {str(tool.get('name'))[:200]}"
        if kind == "tool_reference":
            return self._definition(tool.get("name"), "tool", "name")
        definition = tool.get("definition")
        if not isinstance(definition, dict):
            raise Misplaced(missing(definition, "an object"), "tool", "definition")
        try:
            return _text(_function(definition))
        except Misplaced as error:
            raise error.within("tool", "definition") from None

    def _add(self, raw: dict[str, Any]) -> None:
        tool = _function(raw)
        self._known[tool["function"]["name"]] = tool
        if not raw.get("defer_loading"):
            self._shown.append(tool)

    def _definition(self, name: Any, *place: str) -> str:
        tool = self._known.get(name) if isinstance(name, str) else None
        if tool is None:
            raise Misplaced(f"Tool reference {str(name)[:80]!r} not found in available tools", *place)
        return _text(tool)


def _text(tool: Mapping[str, Any]) -> str:
    return f"Tool available: {encoded(tool).decode()}"


def _function(raw: dict[str, Any]) -> dict[str, Any]:
    if raw.get("type") not in (None, "custom"):
        text = f"{str(raw['type'])[:40]!r}: tools that run on the server are not supported here; leave it out"
        raise Misplaced(text, "type", code="unsupported_value")
    name, schema, description = raw.get("name"), raw.get("input_schema"), raw.get("description")
    if not isinstance(name, str) or not name:
        raise Misplaced(missing(name, "a valid string"), "name")
    if not isinstance(schema, dict):
        raise Misplaced(missing(schema, "an object"), "input_schema")
    properties = schema.get("properties")
    if properties is None:
        schema = {key: value for key, value in schema.items() if key != "properties"}
    elif not isinstance(properties, dict):
        raise Misplaced("Input should be an object", "input_schema", "properties")
    if description is None:
        return {"type": "function", "function": {"name": name, "parameters": schema}}
    if not isinstance(description, str):
        raise Misplaced("Input should be a valid string", "description")
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}
