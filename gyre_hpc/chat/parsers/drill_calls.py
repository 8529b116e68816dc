"""The drill format: `<tool_call>{"name":"...","arguments":{...}}</tool_call>`, to the letter, and nothing between or after calls.

One wrong character makes all that follows the first opening mark malformed, so no call is told before the end.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from gyre_hpc.chat.base import ToolCall
from gyre_hpc.chat.drill_vocabulary import TOOL_CALL_CLOSE, TOOL_CALL_OPEN
from gyre_hpc.chat.parsers.base import CallGrammar, CallInProgress, Verdict

_CALL = re.compile(r'\{"name":"([A-Za-z0-9_.-]+)","arguments":(\{.*\})\}', re.DOTALL)
_NAME = re.compile(r'"name":"([A-Za-z0-9_.-]+)"')


class DrillCalls(CallGrammar):
    """Calls as JSON in one spelling."""

    name = "drill"
    opening = TOOL_CALL_OPEN
    owns_space = False

    def begin(self, tools: Sequence[dict[str, Any]]) -> CallInProgress:
        return _DrillCall()


class _DrillCall(CallInProgress):
    def judge(self, text: str, *, final: bool) -> Verdict | None:
        if not final:
            return None
        bodies = text.removeprefix(TOOL_CALL_OPEN).removesuffix(TOOL_CALL_CLOSE).split(TOOL_CALL_CLOSE + TOOL_CALL_OPEN)
        calls = [_call(body) for body in bodies] if text.endswith(TOOL_CALL_CLOSE) else [None]
        if None in calls:
            match = _NAME.search(text)
            reason = 'write <tool_call>{"name":"...","arguments":{...}}</tool_call> and nothing after it'
            return Verdict(end=len(text), reason=reason, name=match[1] if match else "")
        return Verdict(end=len(TOOL_CALL_OPEN + bodies[0] + TOOL_CALL_CLOSE), call=calls[0])


def _call(body: str) -> ToolCall | None:
    match = _CALL.fullmatch(body)
    if match is None or not _is_object(match[2]):
        return None
    return ToolCall(name=match[1], arguments=match[2])


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
