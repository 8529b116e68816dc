"""Where a call's context is, as far as this shard can know: facts for the choice of a cell.

KV is at the cell that computed it last, or where it moved to, in that cell's term: a cell that went to training and came back
has a new term and an empty cache. A cell with other weights than those that sampled the context has it only if the engines
keep old KV. Of a restart the terms are not known; then the cell is believed.

A prompt from scratch has no such cell; but the executions of a group begin alike, so the cell that began with the newest of them
has what both have in common.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from gyre_hpc.machines.call.node import Node
from gyre_hpc.protocol.identity import ExecutionId, GroupId
from gyre_hpc.protocol.to_gateway import Row
from gyre_hpc.protocol.train_groups import TrainGroups

MOST_OPENINGS = 1024
"""Groups and roles remembered, the newest."""


@dataclass(frozen=True, slots=True)
class Home:
    """A cell that has the first `num_tokens` of a context; an empty name: none is known."""

    cell: str = ""
    num_tokens: int = 0


@dataclass(frozen=True, slots=True)
class _Opening:
    prompt: bytes
    row: Row


class Homes:
    """Looks up recorded nodes, and remembers how groups opened."""

    def __init__(self, keep_kv: bool) -> None:
        self._keep_kv = keep_kv
        self._openings: OrderedDict[tuple[GroupId, str], _Opening] = OrderedDict()

    def home_of(self, node: Node, rows: Mapping[str, Row]) -> Home:
        """O(calls before it whose KV is gone); the newest of its context that is still at a cell of `rows`."""
        at: Node | None = node
        while at is not None:
            row = rows.get(at.moved_to or at.cells[-1]) if at.moved_to or at.cells else None
            if row is not None and self._is_there(at, row):
                return Home(row.cell, at.num_prompt + at.num_output)
            at = at.parent
        opening = self._openings.get(_opening(node)) if node.parent is None else None
        if opening is None:
            return Home()
        row = rows.get(opening.row.cell)
        if row is None or row.term != opening.row.term or not (self._keep_kv or row.version == opening.row.version):
            return Home()
        return Home(row.cell, num_common(opening.prompt, node.suffix))

    def opened(self, node: Node, row: Row) -> None:
        """A call without a parent is sent to the cell of `row`."""
        if node.parent is None:
            key = _opening(node)
            self._openings.pop(key, None)
            self._openings[key] = _Opening(node.suffix, row)
            if len(self._openings) > MOST_OPENINGS:
                self._openings.popitem(last=False)

    def forget(self, groups: TrainGroups) -> None:
        """They are over: nobody begins like them any more."""
        self._openings = OrderedDict((key, opening) for key, opening in self._openings.items() if key[0] not in groups)

    def _is_there(self, node: Node, row: Row) -> bool:
        return node.term in (None, row.term) and (self._keep_kv or node.newest in (None, row.version))


def _opening(node: Node) -> tuple[GroupId, str]:
    """Group and role."""
    return ExecutionId.parse(node.execution).group_id, node.role


def num_common(one: bytes, other: bytes) -> int:
    """Tokens that two packed prompts begin with alike. O(length), by comparing slices."""
    low, high = 0, min(len(one), len(other)) // 4
    while low < high:
        middle = (low + high + 1) // 2
        if one[4 * low : 4 * middle] == other[4 * low : 4 * middle]:
            low = middle
        else:
            high = middle - 1
    return low
