"""Calls of earlier lives of one execution that the present life has not asked for yet.

A request is one of them by its likeness: role, fields and messages without what differs between two processes that do the same. Of
several alike the oldest is taken, but first of those of the thread that its thread is known to be, and that go on from the same
call: agents that run side by side ask in another order each time.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gyre_hpc.machines.call.node import Node


class Recording:
    """What can be replayed."""

    def __init__(self, nodes: Iterable["Node"] = ()) -> None:
        """Every call so far, oldest first."""
        self._by_likeness: defaultdict[str, list[Node]] = defaultdict(list)
        self._left: dict[str, Node] = {}
        self._threads: dict[str, str] = {}
        """Thread of this life -> the recorded one it is."""
        for node in nodes:
            self._left[node.call] = node
            if node.likeness:
                self._by_likeness[node.likeness].append(node)

    def __bool__(self) -> bool:
        return bool(self._left)

    def __contains__(self, node: "Node") -> bool:
        return node.call in self._left

    def find(self, likeness: str, thread: str, parent: "Node | None") -> "Node | None":
        """The call that a request is; `parent`: what it goes on from. It is left here until `claim`."""
        fitting = [node for node in self._by_likeness.get(likeness, ()) if node.call in self._left and not self._hangs(node)]
        own = self._threads.get(thread)
        return min(
            fitting, key=lambda node: (own is not None and node.thread != own, node.parent is not parent, node.ordinal), default=None
        )

    def claim(self, node: "Node", thread: str) -> None:
        """It is asked for, under this thread name."""
        self._left.pop(node.call, None)
        self._threads.setdefault(thread, node.thread)

    def goes_on(self, parent: "Node | None", role: str) -> bool:
        """There is a call of this role after `parent` (None: that begins a conversation) that got tokens: a request that is none of
        them says something else than was said there. Agents beside the main one begin in any order, so of theirs nothing is known."""
        if parent is None and role == "sub_agent":
            return False
        return any(node.parent is parent and node.role == role and node.output for node in self._left.values())

    def _hangs(self, node: "Node") -> bool:
        """What it goes on from was not asked for in this life."""
        return node.parent is not None and node.parent.call in self._left
