"""Values that a model wrote as bare text, as JSON of the types that the tool's schema allows."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_AS_TEMPLATES_WRITE_IT = {"true": "true", "false": "false", "null": "null", "none": "null"}
"""Templates print Python's True, False and None for what was JSON."""
_TYPES: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "object": (dict,),
    "array": (list,),
}


def arguments_json(name: str, values: Mapping[str, str], tools: Sequence[dict[str, Any]]) -> str:
    """The arguments of a call of tool `name` as JSON text."""
    properties = _properties(name, tools)
    members = (f"{json.dumps(key, ensure_ascii=False)}: {_typed(text, properties.get(key))}" for key, text in values.items())
    return "{" + ", ".join(members) + "}"


def _typed(text: str, schema: Any) -> str:
    """`text` itself where it is JSON of an allowed type, else the JSON string of it."""
    allowed = set(_types(schema))
    candidate = _AS_TEMPLATES_WRITE_IT.get(text.strip().lower(), text.strip())
    try:
        value = json.loads(candidate, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return json.dumps(text, ensure_ascii=False)
    for kind in allowed - {"string"}:
        if type(value) in _TYPES.get(kind, ()):
            return candidate
    return json.dumps(text, ensure_ascii=False)


def _types(schema: Any) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    kind = schema.get("type", ())
    yield from (kind,) if isinstance(kind, str) else (one for one in kind if isinstance(one, str)) if isinstance(kind, list) else ()
    for union in ("anyOf", "oneOf", "allOf"):
        inner = schema.get(union)
        for one in inner if isinstance(inner, list) else ():
            yield from _types(one)


def _properties(name: str, tools: Sequence[dict[str, Any]]) -> Mapping[str, Any]:
    for tool in tools:
        function = tool.get("function")
        if isinstance(function, dict) and function.get("name") == name:
            parameters = function.get("parameters")
            properties = parameters.get("properties") if isinstance(parameters, dict) else None
            return properties if isinstance(properties, dict) else {}
    return {}


def _refuse(text: str) -> None:
    raise ValueError(text)
