"""Where a rank stands: among the ranks of its cell, on which of the cell's nodes, and where the server of that node is."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from gyre_hpc.cell.world import Channel
from gyre_hpc.config.place import cache_folder, scratch_folder
from gyre_hpc.engines.sglang.parts import Nodes
from gyre_hpc.engines.sglang.site import Part, Site
from gyre_hpc.ports import listen
from gyre_hpc.shell.arguments import Birth
from gyre_hpc.shell.lifetime import SUPERVISOR_PID


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """This process among the ranks of its cell. Nodes are numbered in the order of their ranks: the leader is on node 0."""

    rank: int
    world: int
    local_rank: int = 0
    """Among the ranks on its node."""
    node: int = 0
    num_nodes: int = 1

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Self:
        """As torchrun says; without it this is the only rank."""

        def number(name: str, default: int) -> int:
            return int(environ.get(name, default))

        return cls(
            rank=number("RANK", 0),
            world=number("WORLD_SIZE", 1),
            local_rank=number("LOCAL_RANK", 0),
            node=number("GROUP_RANK", 0),
            num_nodes=number("GROUP_WORLD_SIZE", 1),
        )

    @property
    def is_leader(self) -> bool:
        return self.rank == 0

    @property
    def holds_server(self) -> bool:
        """Where a cell's engine is a server: one part of it on each node, held by the node's first rank."""
        return self.local_rank == 0


def meet(place: Place, channel: Channel | None, interface: str, deadline_s: float) -> Nodes:
    """The cell's nodes, as the server on this one sees them. Called by every rank: the leader chooses where the server's ranks meet,
    and tells the others. Chosen anew each time: so the server of a cell of several nodes is never adopted on a part of them.
    deadline_s: a rank comes here once its trainer is made; the slowest to read its checkpoint counts.

    Raises CellLost, OSError.
    """
    if place.num_nodes == 1:
        return Nodes()
    assert channel is not None, "several nodes have several ranks"
    if place.is_leader:
        address = f"{interface}:{free_port(interface)}"
        for rank in range(1, place.world):
            channel.send(rank, address.encode(), deadline_s)
    else:
        address = channel.receive(0, deadline_s).decode()
    return Nodes(number=place.node, count=place.num_nodes, address=address)


def server_site(birth: Birth, place: Place, nodes: Nodes, part: Part = Part.whole, bootstrap_port: int = 0) -> Site:
    """Of the server on this node."""
    config = birth.config
    return Site(
        folder=server_folder(birth, nodes),
        cache=cache_folder(config),
        world=place.world,
        nodes=nodes,
        interface=config.network.interface,
        part=part,
        bootstrap_port=bootstrap_port,
        root_pid=root_pid(),
        log=server_log(birth, nodes),
    )


def server_folder(birth: Birth, nodes: Nodes) -> Path:
    """Of the server on this node: the same for every incarnation of the cell in this attempt, so that the next one finds it there."""
    name = f"{birth.attempt}-{birth.name}" + (f".{nodes.number}" if nodes.count > 1 else "")
    return scratch_folder(birth.config, birth.folder, birth.node) / name


def server_log(birth: Birth, nodes: Nodes) -> Path:
    """What the server on this node prints: beside the other logs, as scratch goes with the run."""
    return birth.folder.log(f"{birth.name}-sglang" + (f"-{nodes.number}" if nodes.count > 1 else ""))


def root_pid() -> int:
    """The process that holds this run on this node: its end ends everything of the run here. Started by hand: the parent."""
    return int(os.environ.get(SUPERVISOR_PID) or os.getppid())


def free_port(interface: str) -> int:
    """Free now; the server takes it itself."""
    with listen(interface) as listener:
        return int(listener.getsockname()[1])
