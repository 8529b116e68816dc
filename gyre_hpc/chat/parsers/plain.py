"""Models that call no tools: everything is text."""

from collections.abc import Sequence
from typing import Any

from gyre_hpc.chat.parsers.base import CallGrammar, CallInProgress


class Plain(CallGrammar):
    """No calls."""

    name = "plain"
    opening = ""
    owns_space = False

    def begin(self, tools: Sequence[dict[str, Any]]) -> CallInProgress:
        raise AssertionError("no opening mark, no call")
