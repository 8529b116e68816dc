"""Why a call does not simply go on from its parent's answer (CallBegin.branch).

Several agents may share one thread name, so nothing here asks what came last in a thread. A call goes on with its parent's
line when it has the parent's role; a call that looks at a conversation from outside (compaction, helper) is no line of its
own, and what follows it is not cut off by it.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gyre_hpc.machines.call.node import Found, Node

_OUTSIDE = frozenset({"compaction", "helper"})


@dataclass(slots=True)
class _Thread:
    """What is remembered of the calls under one thread name."""

    contexts: set[str] = field(default_factory=set)
    openings: set[bytes] = field(default_factory=set)
    """Digests of the system turns that its conversations began with."""
    is_recalled: bool = False
    """Some of its conversations began before a restart: how is not known any more."""
    num_compactions: int = 0
    """Since the last conversation that followed one."""


class Branches:
    """Labels the calls of one execution, in order of arrival."""

    def __init__(self) -> None:
        self._threads: defaultdict[str, _Thread] = defaultdict(_Thread)

    def label(self, found: "Found", *, role: str, thread: str) -> str:
        """Empty when the request goes on from its parent's answer, as nothing did so far."""
        known = self._threads[thread]
        if found.drifted:
            return "template_drift"
        if found.context in known.contexts:
            return "retry"
        if found.parent is not None and _goes_on(found.parent, role):
            return ""
        if role in ("sub_agent", "compaction"):
            return role
        if found.parent is None and (not known.contexts or self._is_own(known, found)):
            return "root"
        if known.num_compactions:
            return "compaction"
        return "root" if found.parent is None and not found.has_answers else "edited_history"

    def add(self, node: "Node", branch: str, opening: bytes | None) -> None:
        """A begun call; `opening` None: not known."""
        known = self._threads[node.thread]
        known.contexts.add(node.context)
        if node.role == "compaction":
            known.num_compactions += 1
        elif branch == "compaction":
            known.num_compactions = 0
        if node.parent is not None:
            node.parent.is_continued |= _continues(node.parent, node.role)
        elif opening is None:
            known.is_recalled = True
        elif node.role not in _OUTSIDE:
            known.openings.add(opening)

    def _is_own(self, known: _Thread, found: "Found") -> bool:
        """A conversation under a system prompt of its own, not yet answered: another agent under the same thread name."""
        return bool(found.opening) and not found.has_answers and not known.is_recalled and found.opening not in known.openings


def _continues(parent: "Node", role: str) -> bool:
    return role == parent.role or parent.role in _OUTSIDE


def _goes_on(parent: "Node", role: str) -> bool:
    return not parent.is_continued if _continues(parent, role) else role in _OUTSIDE and not parent.num_children
