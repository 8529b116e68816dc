"""What an allocation is made of, and what a partition says about it."""

import enum
from dataclasses import dataclass

NO_DEVICE = ""
"""Kind of a node without devices: it can run harnesses, never a cell."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """Devices of one kind on one node. A node with several kinds is named once for each."""

    name: str
    kind: str
    """`h100`; `gpu` where the kind is not told; any word for what is no GPU (`cpu`); empty without devices."""
    num_devices: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Switch:
    """One switch with what hangs on it directly. Without parents it is a root; several roots are not connected."""

    name: str
    switches: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Rank:
    """One device of a cell."""

    node: str
    device: int
    """Index among the node's devices of the cell's kind, from 0."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """Ranks that share one rendezvous. A node's ranks are consecutive, and equally many on every node of the cell."""

    name: str
    kind: str
    ranks: tuple[Rank, ...]
    switch: str
    """Lowest switch above all its nodes; empty for a cell within one node, or when no topology is known."""
    height: int
    """Levels of switches up to `switch`: 1 for a switch with nodes only; 0 within one node."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """In rank order, each once."""
        return tuple(dict.fromkeys(rank.node for rank in self.ranks))

    @property
    def ranks_per_node(self) -> int:
        return len(self.ranks) // len(self.nodes)


class Reason(enum.Enum):
    """Why devices are in no cell."""

    other_kind = "other_kind"
    """Cells of another kind were asked for."""
    too_few_on_node = "too_few_on_node"
    """The node has devices beside those of its cells, too few for one more (or for one more rank of each node)."""
    too_few_nodes = "too_few_nodes"
    """A cell needs several nodes; no switch has enough of this kind and size left."""
    no_switch = "no_switch"
    """A cell needs several nodes, and the topology does not say where this one hangs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Leftover:
    """Devices of one node that are in no cell."""

    node: str
    kind: str
    devices: tuple[int, ...]
    reason: Reason
    text: str
    """The reason with its numbers, for people."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Partition:
    """Every device of the allocation once: in a cell or left over."""

    ranks_per_cell: int
    cells: tuple[Cell, ...]
    leftovers: tuple[Leftover, ...]
    without_devices: tuple[str, ...]
    """Nodes that can run harnesses only."""

    def of_kind(self, kind: str) -> tuple[Cell, ...]:
        """A run takes cells of one kind: different kinds stand side by side here, and its launcher chooses."""
        return tuple(cell for cell in self.cells if cell.kind == kind)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds that have cells, the one with the most cells first."""
        kinds = sorted({cell.kind for cell in self.cells})
        return tuple(sorted(kinds, key=lambda kind: -len(self.of_kind(kind))))
