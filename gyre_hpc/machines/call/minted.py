"""The answer as it is sent: every tool call with a minted id, also those that could not be parsed.

The latter go to the agent as calls that fail: its own program answers them with an error, and it goes on.
"""

import json
from dataclasses import replace

from gyre_hpc.chat.base import Answer, Malformed, ToolCall

NAME = "malformed_tool_call"
"""No harness has a tool of this name."""


def as_sent(call: str, answer: Answer) -> Answer:
    """Ids that find this call again: harnesses send them back verbatim. Malformed calls follow the others."""
    execution, _, ordinal = call.rpartition("/")
    calls = (*answer.tool_calls, *map(as_tool_call, answer.malformed))
    return replace(answer, tool_calls=tuple(replace(one, id=f"call_{execution}_{ordinal}_{place}") for place, one in enumerate(calls)))


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
