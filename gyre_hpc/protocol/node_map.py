"""Which process of a run belongs on which node of its allocation: attempts/<n>/nodes.json, made before the supervisors start."""

import msgspec

from gyre_hpc.protocol.supervision import NodeOffer

FIRST = "supervisor-0"
"""Supervisor of the first node: registry, controller, gateways."""


class NodePlace(msgspec.Struct, frozen=True):
    """One node of the allocation and its supervisor."""

    supervisor: str
    """supervisor-<place in the allocation>; FIRST for the first one."""
    host: str


class CellPlace(msgspec.Struct, frozen=True):
    """One cell: equally many ranks on each of its nodes."""

    cell: str
    supervisors: tuple[str, ...]
    """In rank order; part i of the cell is on the i-th."""
    slots: tuple[int, ...]
    """Which of a node's devices (or, without devices, which of its places), the same on each of the nodes."""


class NodeMap(msgspec.Struct, frozen=True):
    """The cut of an allocation. cell-0, the core, has its first part on FIRST."""

    nodes: tuple[NodePlace, ...] = ()
    cells: tuple[CellPlace, ...] = ()
    runners: dict[str, str] = {}
    """runner-<k> -> supervisor-<k>."""

    def cells_on(self, supervisor: str) -> tuple[CellPlace, ...]:
        return tuple(cell for cell in self.cells if supervisor in cell.supervisors)


class RunStart(msgspec.Struct, frozen=True):
    """attempts/<n>/start.json: written by FIRST once it listens, read by the other nodes' supervisors, by satellites, and by tools."""

    attempt: int
    url: str
    job: str = ""
    """SLURM job id; empty for a local run."""
    restarts: int = 0
    """SLURM_RESTART_COUNT: with `job`, the start that this is."""
    host: str = ""
    pid: int = 0
    offer: NodeOffer | None = None
    unix_s: float = 0.0


def local_map(cells: int, ranks_per_cell: int, host: str) -> NodeMap:
    """Everything on one machine."""
    return NodeMap(
        nodes=(NodePlace(FIRST, host),),
        cells=tuple(
            CellPlace(f"cell-{index}", (FIRST,), tuple(range(index * ranks_per_cell, (index + 1) * ranks_per_cell)))
            for index in range(cells)
        ),
        runners={"runner-0": FIRST},
    )
