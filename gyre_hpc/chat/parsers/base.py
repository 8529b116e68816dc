"""How a kind of model writes its tool calls. One file per kind; scanner.py does what all share.

Invariant: what `judge` decided of a text stands, whatever follows it.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gyre_hpc.chat.base import ToolCall

LONGEST_NAME = 128


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """One call, or what was meant to be one."""

    end: int
    """Characters it takes, marks included."""
    call: ToolCall | None = None
    """None: malformed."""
    reason: str = ""
    name: str = ""


class CallInProgress(ABC):
    """One call, from its opening mark on."""

    @abstractmethod
    def judge(self, text: str, *, final: bool) -> Verdict | None:
        """`text` begins with the opening mark and has grown since the last time. None: more of it is needed; never when `final`.

        Remembers what it has seen, so that a call costs as much as it is long, however many pieces it comes in.
        """


class CallGrammar(ABC):
    """One kind."""

    name: str
    opening: str
    """Mark that begins a call; empty: this kind knows no calls."""
    owns_space: bool = True
    """White space next to calls belongs to their marks, not to the text."""

    @abstractmethod
    def begin(self, tools: Sequence[dict[str, Any]]) -> CallInProgress: ...


def is_name(text: object) -> bool:
    """Whether a tool can be called so."""
    return isinstance(text, str) and 0 < len(text) <= LONGEST_NAME and text.isprintable() and not text.isspace()
