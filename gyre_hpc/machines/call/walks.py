"""Walks through a recorded tree, kept so that the next request of a conversation goes on where the last one came to.

A walk is kept up to the last recorded answer it met, and only if nothing it depends on can change: in every context it looked
for an answer there was none, or one call that is answered for good. A call begun later in one of them makes it forgotten.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gyre_hpc.machines.call.node import Node
    from gyre_hpc.machines.call.turns import Turn

_MOST = 3
"""Conversations of one execution that grow side by side."""


@dataclass(frozen=True, slots=True)
class Walk:
    """From the first turn to a recorded answer."""

    tools_digest: bytes
    turns: tuple["Turn", ...]
    """The last one is the answer of `parent`."""
    parent: "Node"
    changed: bool
    """Found.changed."""
    passed: frozenset[str]
    """Contexts in which an answer was looked for."""


class Walks:
    """A memory of what can be walked again."""

    def __init__(self) -> None:
        self._kept: list[Walk] = []
        """The one that grew last is last."""

    def longest(self, tools_digest: bytes, turns: Sequence["Turn"]) -> Walk | None:
        """The longest one that a request with these turns begins with."""
        fitting = [walk for walk in self._kept if walk.tools_digest == tools_digest and tuple(turns[: len(walk.turns)]) == walk.turns]
        return max(fitting, key=lambda walk: len(walk.turns), default=None)

    def keep(self, walk: Walk, before: Walk | None) -> None:
        """`before`: the walk it went on from."""
        self._kept = [*(other for other in self._kept if other is not before), walk][-_MOST:]

    def forget(self, context: str) -> None:
        """A call begins in this context."""
        self._kept = [walk for walk in self._kept if context not in walk.passed]
