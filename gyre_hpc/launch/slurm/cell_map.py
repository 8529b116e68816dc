"""Which process belongs on which node of an allocation. Pure: the same answer at submit (with made-up names) and in the job."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from gyre_hpc.allocation.base import Cell, Node, Partition, Switch
from gyre_hpc.allocation.cell_map import table
from gyre_hpc.allocation.hostlist import compress
from gyre_hpc.allocation.partition import partition
from gyre_hpc.config.schema import Config
from gyre_hpc.errors import UserError
from gyre_hpc.protocol.node_map import CellPlace, NodeMap, NodePlace

PLACES = "cpu"
"""Kind of a place without a GPU."""


def cut(config: Config, hosts: Sequence[str], switches: Sequence[Switch] = ()) -> Partition:
    """The allocation in cells: of GPUs where the job asks for some, else of as few places per node as give the run's cells."""
    cluster, gpus = config.cluster, config.cluster.slurm.gpus_per_node
    if gpus:
        return _cut(hosts, switches, "gpu", gpus, cluster.ranks_per_cell)
    fewest = -(-cluster.cells * cluster.ranks_per_cell // len(hosts))
    most = -(-cluster.cells // len(hosts)) * cluster.ranks_per_cell  # no cell on two nodes
    cuts = (_cut(hosts, switches, PLACES, places, cluster.ranks_per_cell) for places in range(fewest, most + 1))
    return next(found for found in cuts if len(found.cells) >= cluster.cells)


def _cut(hosts: Sequence[str], switches: Sequence[Switch], kind: str, places: int, ranks: int) -> Partition:
    return partition([Node(name=host, kind=kind, num_devices=places) for host in hosts], switches, ranks_per_cell=ranks)


def cells_of(config: Config, hosts: Sequence[str], found: Partition) -> tuple[Cell, ...]:
    """The run's own, in the order of their numbers. The core is one with its first rank on the first node; the others are the first of GPUs,
    and evenly spread where there are none.

    Raises UserError when the nodes give fewer cells than cluster.cells, or none that begins on the first node.
    """
    wanted = config.cluster.cells
    if len(found.cells) < wanted:
        have = f"{len(hosts)} nodes of {config.cluster.slurm.gpus_per_node} GPUs"
        raise UserError(
            "cluster.cells",
            wanted,
            f"{have} give {len(found.cells)} of {config.cluster.ranks_per_cell} ranks; ask for more in cluster.slurm.*",
        )
    core = next((cell for cell in found.cells if hosts[0] in cell.nodes), None)
    if core is None:
        raise UserError("cluster.ranks_per_cell", config.cluster.ranks_per_cell, f"no cell can lie on the first node, {hosts[0]}")
    others = [cell for cell in found.cells if cell is not core]
    return (core, *(others if config.cluster.slurm.gpus_per_node else _spread(core, others, wanted - 1))[: wanted - 1])


def _spread(core: Cell, others: Sequence[Cell], wanted: int) -> list[Cell]:
    """Of each node its first cell, then of each its second, ...; so many, in the order that they had."""
    on_node = Counter(core.nodes)
    rounds = []
    for place, cell in enumerate(others):
        rounds.append((max(on_node[node] for node in cell.nodes), place))
        on_node.update(cell.nodes)
    return [others[place] for place in sorted(place for _, place in sorted(rounds)[:wanted])]


def node_map(config: Config, hosts: Sequence[str], switches: Sequence[Switch] = ()) -> NodeMap:
    """hosts: in the order of the job's tasks. Raises UserError as cells_of."""
    chosen = cells_of(config, hosts, cut(config, hosts, switches))
    supervisors = {host: f"supervisor-{place}" for place, host in enumerate(hosts)}
    return NodeMap(
        nodes=tuple(NodePlace(supervisors[host], host) for host in hosts),
        cells=tuple(
            CellPlace(
                f"cell-{number}",
                _first_to_front(tuple(supervisors[host] for host in cell.nodes)),
                tuple(rank.device for rank in cell.ranks[: cell.ranks_per_node]),
            )
            for number, cell in enumerate(chosen)
        ),
        runners={f"runner-{place}": name for place, name in enumerate(supervisors.values())},
    )


def described(config: Config, hosts: Sequence[str]) -> str:
    """The run's cells as a table, and what stays empty; lines for people. Raises UserError as cells_of."""
    cluster, found = config.cluster, cut(config, hosts)
    chosen = cells_of(config, hosts, found)
    named = tuple(replace(cell, name=f"cell-{number}") for number, cell in enumerate(chosen))
    gpus = cluster.slurm.gpus_per_node
    lines = [table(replace(found, cells=named, leftovers=found.leftovers if gpus else ()))]
    if gpus and (over := len(found.cells) - len(chosen)):
        lines.append(f"there are GPUs for {over} more (cluster.cells={cluster.cells}), which would stay unused")
    taken = {node for cell in chosen for node in cell.nodes}
    if empty := [host for host in hosts if host not in taken]:
        why = f"cluster.cells={cluster.cells} of cluster.ranks_per_cell={cluster.ranks_per_cell} take {len(taken)} of {len(hosts)} nodes"
        lines.append(f"without a cell, for harnesses only: {compress(empty)} ({why})")
    return "\n".join(lines)


def _first_to_front(supervisors: tuple[str, ...]) -> tuple[str, ...]:
    """The core's leader is on the first node, where the controller is."""
    return tuple(sorted(supervisors, key=lambda name: name != "supervisor-0"))
