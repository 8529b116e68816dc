"""Calls of one execution -> tree. A node is a call; equal tokens of two calls are two nodes.

full(c) = context(c) + output(c), context(c) = full(parent) + suffix: so the ids of a root-to-leaf path are the suffixes and
outputs of its calls, one after the other, and every output stands in the context it was generated in.

A *target* is an output token of a delivered call; the first token of a sequence is none, it has no context.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from gyre_hpc.protocol.tensors import Ids
from gyre_hpc.trajectory.base import Call


class CallTree:
    """Immutable after it was built. Everything here costs O(calls); only `full_ids` and `context` touch tokens."""

    def __init__(self, calls: Iterable[Call]) -> None:
        """Raises ValueError for a parent that is missing, comes later or belongs to another execution."""
        ordered = sorted(calls, key=lambda call: call.ordinal)
        self.calls: Mapping[str, Call] = {call.id: call for call in ordered}
        self.children: dict[str, list[str]] = {call.id: [] for call in ordered}
        self._context_size: dict[str, int] = {}
        for call in ordered:
            self._context_size[call.id] = len(call.suffix_ids)
            parent = self.calls.get(call.parent) if call.parent is not None else None
            if call.parent is None:
                continue
            if parent is None or parent.ordinal >= call.ordinal or parent.execution != call.execution:
                raise ValueError(f"call {call.id} builds on {call.parent}, which is no earlier finished call of its execution")
            self.children[parent.id].append(call.id)
            self._context_size[call.id] += self._context_size[parent.id] + len(parent.output_ids)
        self.leaves: tuple[str, ...] = tuple(call.id for call in self._leaf_calls(ordered))
        """Delivered calls without delivered successors, in order of arrival."""

    def _leaf_calls(self, ordered: list[Call]) -> list[Call]:
        followed: set[str] = set()
        for call in reversed(ordered):
            if call.parent is not None and (call.delivered or call.id in followed):
                followed.add(call.parent)
        return [call for call in ordered if call.delivered and call.id not in followed]

    @property
    def is_branching(self) -> bool:
        """Whether what was delivered is more than one line of calls."""
        return len(self.leaves) > 1

    def path(self, call: str) -> tuple[str, ...]:
        """Calls from the root to `call`."""
        found = [call]
        while (parent := self.calls[found[-1]].parent) is not None:
            found.append(parent)
        return tuple(reversed(found))

    def full_ids(self, call: str) -> Ids:
        """int32 [T]: context and output."""
        parts = [part for name in self.path(call) for part in (self.calls[name].suffix_ids, self.calls[name].output_ids)]
        return np.concatenate(parts)

    def context(self, call: str) -> Ids:
        """int32 [T - O]: what `call` was generated in."""
        full = self.full_ids(call)
        return full[: len(full) - len(self.calls[call].output_ids)]

    def first_target(self, call: str) -> int:
        """Index in the call's output of its first target: 1 for an output without any context, else 0."""
        return int(self._context_size[call] == 0)

    def num_targets(self, call: str) -> int:
        """Targets in the call's own output; 0 when it was not delivered."""
        node = self.calls[call]
        return max(0, len(node.output_ids) - self.first_target(call)) if node.delivered else 0
