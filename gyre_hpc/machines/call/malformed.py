"""Tool calls that could not be parsed go to the agent as calls that fail: its own program answers them with an error."""

import json

from gyre_hpc.chat.base import Malformed, ToolCall

NAME = "malformed_tool_call"
"""No harness has a tool of this name."""


def as_tool_call(bad: Malformed) -> ToolCall:
    """The tool that it names with arguments that are no JSON object, or a tool that does not exist."""
    if bad.name and not _is_object(bad.raw):
        return ToolCall(name=bad.name, arguments=bad.raw)
    return ToolCall(name=NAME, arguments=json.dumps({"error": bad.reason, "raw": bad.raw}, ensure_ascii=False))


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
