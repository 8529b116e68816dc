"""One node of a run as its supervisor finds it: what every supervisor needs, whichever machine it hosts."""

import logging
import os
import resource
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from gyre_hpc.addresses import card_of
from gyre_hpc.config.place import scratch_folder
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.machines.base import Machine, Restarted
from gyre_hpc.ports import restrict
from gyre_hpc.protocol.node_map import FIRST, NodeMap
from gyre_hpc.protocol.supervision import NodeOffer
from gyre_hpc.shell.arguments import config_here
from gyre_hpc.shell.host import Action, Host, NoteSink
from gyre_hpc.supervisor.commands import MODULES, Commands
from gyre_hpc.supervisor.devices import Places, devices_here, kind_here

log = logging.getLogger(__name__)
END_WITHIN_S = 90
"""A supervisor that was told to end is ended by the kernel after this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Here:
    """`config` is as it holds here: network.interface is an address of this node."""

    name: str
    """Of the supervisor."""
    folder: RunFolder
    config: Config
    scratch: Path
    devices: tuple[str, ...]
    host: str
    """Name of the node, for people."""
    modules: str = MODULES

    @classmethod
    def find(cls, folder: RunFolder, *, name: str = FIRST, interface: str = "", host: str = "", modules: str = MODULES) -> Self:
        """Look around; from here on this process listens where network.port_range allows. Raises UserError."""
        config = config_here(folder, interface)
        restrict(config.network.port_range)
        return cls(
            name=name,
            folder=folder,
            config=config,
            scratch=scratch_folder(config, folder, node_of(name)),
            devices=devices_here(os.environ),
            host=host or socket.gethostname(),
            modules=modules,
        )

    def offer(self, cells: int = 0) -> NodeOffer:
        """What this node has. cells: that nobody planned and that it has room for."""
        return NodeOffer(self.host, self.config.network.interface, self.devices, kind_here(self.devices), cells)

    def commands(self, attempt: int, supervisor_url: str, nodes: NodeMap, joining: int = 0) -> Commands:
        """How children are started here. joining: as `cells` of the offer."""
        return Commands(
            config=self.config,
            run=str(self.folder.root),
            scratch=str(self.scratch),
            attempt=attempt,
            supervisor_url=supervisor_url,
            places=Places(nodes.cells_on(self.name), self.devices, joining=joining, ranks=self.config.cluster.ranks_per_cell),
            parts={place.cell: len(place.supervisors) for place in nodes.cells},
            node=node_of(self.name),
            card=card_of(self.config.network.interface),
            modules=self.modules,
        )

    def make_host(self, attempt: int, actions: dict[type, Action], note: NoteSink, addresses: dict[str, str]) -> Host:
        """For the machine of this supervisor."""
        return Host(
            name=self.name,
            attempt=attempt,
            run_token=self.folder.token.read_text().strip(),
            addresses=addresses,
            actions=actions,
            note=note,
            record_to=self.folder.inputs(self.name, attempt) if self.config.debug.record_inputs else None,
        )


async def live(host: Host, machine: Machine, note: NoteSink) -> None:
    """Run the machine until its end; nothing of the host is left then."""
    host.run(machine, Restarted())
    log.info("%s ends: %s", host.name, await host.ended)
    await host.close()
    note("cpu", {"cpu_s": _cpu_s(resource.RUSAGE_SELF), "children_s": _cpu_s(resource.RUSAGE_CHILDREN)})


def node_of(supervisor: str) -> str:
    """Birth.node of the children of this supervisor."""
    return "" if supervisor == FIRST else supervisor.removeprefix("supervisor-")


def _cpu_s(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime
