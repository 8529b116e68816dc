"""Reading the parsed bodies of calls. Whatever a client sent, nothing here raises."""

import json
from collections.abc import Mapping, Sequence
from typing import Any


def entries(body: Mapping[str, Any], field: str) -> Sequence[Mapping[str, Any]]:
    """The objects in a list of the body; empty if it is anything else."""
    value = body.get(field)
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def texts(content: Any) -> list[str]:
    """Text of a content field: a string, or the text blocks of a list, in order."""
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        return []
    return [block["text"] for block in content if isinstance(block, Mapping) and isinstance(block.get("text"), str)]


def last_text(message: Mapping[str, Any]) -> str:
    """The last text of a message, empty if there is none."""
    return next(reversed(texts(message.get("content"))), "")


def system_text(body: Mapping[str, Any]) -> str:
    """Text of the leading system message of a Chat Completions body."""
    first = next(iter(entries(body, "messages")), {})
    return "\n".join(texts(first.get("content"))) if first.get("role") in ("system", "developer") else ""


def tool_names(body: Mapping[str, Any]) -> set[str]:
    """Names of the tools of a Chat Completions body."""
    functions = [tool.get("function") for tool in entries(body, "tools")]
    return {str(function.get("name")) for function in functions if isinstance(function, Mapping)}


def json_header(headers: Mapping[str, str], name: str) -> Mapping[str, Any]:
    """A header that holds a JSON object; empty if it is missing or anything else."""
    try:
        value = json.loads(headers.get(name, ""))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
