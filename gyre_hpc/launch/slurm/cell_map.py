"""Which process belongs on which node of an allocation. Pure: the same answer at submit (with made-up names) and in the job."""

from collections.abc import Sequence

from gyre_hpc.allocation.base import Node, Partition, Switch
from gyre_hpc.allocation.partition import partition
from gyre_hpc.config.schema import Config
from gyre_hpc.errors import UserError
from gyre_hpc.protocol.node_map import CellPlace, NodeMap, NodePlace

PLACES = "cpu"
"""Kind of a place without a GPU."""


def cut(config: Config, hosts: Sequence[str], switches: Sequence[Switch] = ()) -> Partition:
    """The allocation in cells: of GPUs where the job asks for some, else of as many places per node as the run's cells need."""
    cluster, slurm = config.cluster, config.cluster.slurm
    places = slurm.gpus_per_node or -(-cluster.cells * cluster.ranks_per_cell // len(hosts))
    kind = "gpu" if slurm.gpus_per_node else PLACES
    nodes = [Node(name=host, kind=kind, num_devices=places) for host in hosts]
    return partition(nodes, switches, ranks_per_cell=cluster.ranks_per_cell)


def node_map(config: Config, hosts: Sequence[str], switches: Sequence[Switch] = ()) -> NodeMap:
    """hosts: in the order of the job's tasks. cell-0, the core, is one with its first rank on the first of them.

    Raises UserError when the nodes give fewer cells than cluster.cells, or none that begins on the first node.
    """
    cells = cut(config, hosts, switches).cells
    wanted = config.cluster.cells
    if len(cells) < wanted:
        slurm = config.cluster.slurm
        have = f"{len(hosts)} nodes of {slurm.gpus_per_node} GPUs" if slurm.gpus_per_node else f"{len(hosts)} nodes"
        raise UserError(
            "cluster.cells", wanted, f"{have} give {len(cells)} of {config.cluster.ranks_per_cell} ranks; ask for more in cluster.slurm.*"
        )
    supervisors = {host: f"supervisor-{place}" for place, host in enumerate(hosts)}
    first = next((cell for cell in cells if hosts[0] in cell.nodes), None)
    if first is None:
        raise UserError("cluster.ranks_per_cell", config.cluster.ranks_per_cell, f"no cell can lie on the first node, {hosts[0]}")
    chosen = [first, *(cell for cell in cells if cell is not first)][:wanted]
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


def _first_to_front(supervisors: tuple[str, ...]) -> tuple[str, ...]:
    """The core's leader is on the first node, where the controller is."""
    return tuple(sorted(supervisors, key=lambda name: name != "supervisor-0"))
