"""What the supervisor tells every process it starts, and what the process reads with it."""

import argparse
import os
from dataclasses import dataclass, replace

from gyre_hpc.addresses import address_here
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.config.stored import load_config
from gyre_hpc.ports import restrict
from gyre_hpc.protocol.supervision import Register


@dataclass(frozen=True, kw_only=True, slots=True)
class Birth:
    """Who this process is, and its world."""

    name: str
    attempt: int
    incarnation: int
    supervisor_url: str
    folder: RunFolder
    config: Config
    """As it holds here: network.interface is the address of this process's node."""
    run_token: str
    node: str = ""
    """Which node this is among those of the run: the end of its supervisor's name; empty on the first one."""

    @property
    def addresses(self) -> dict[str, str]:
        """What is known before the first directory arrives."""
        return {"supervisor-0": self.supervisor_url}

    def register(self, url: str) -> Register:
        """What this process tells the supervisor once it listens at `url`."""
        return Register(self.name, self.incarnation, url, os.getpid())


def arguments(
    *, name: str, run: str, attempt: int, incarnation: int, supervisor_url: str, interface: str = "", node: str = ""
) -> list[str]:
    """argv tail for `python -m gyre_hpc.processes.X`; inverse of read_birth. `interface`: an address of this node; empty: to be found."""
    argv = ["--name", name, "--run", run, "--attempt", str(attempt), "--incarnation", str(incarnation), "--supervisor", supervisor_url]
    for option, value in (("--interface", interface), ("--node", node)):
        argv += [option, value] if value else []
    return argv


def read_birth(argv: list[str] | None = None) -> Birth:
    """Parse argv and read config.yaml and the run token of the run folder. Raises UserError."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--attempt", type=int, required=True)
    parser.add_argument("--incarnation", type=int, required=True)
    parser.add_argument("--supervisor", required=True)
    parser.add_argument("--interface", default="")
    parser.add_argument("--node", default="")
    given = parser.parse_args(argv)
    folder = RunFolder(given.run)
    config = config_here(folder, given.interface)
    restrict(config.network.port_range)
    return Birth(
        name=given.name,
        attempt=given.attempt,
        incarnation=given.incarnation,
        supervisor_url=given.supervisor,
        folder=folder,
        config=config,
        run_token=folder.token.read_text().strip(),
        node=given.node,
    )


def config_here(folder: RunFolder, interface: str = "") -> Config:
    """The configuration of a run as it holds on this node. `interface` goes before network.interface. Raises UserError."""
    config = load_config(folder.config)
    address = address_here(interface or config.network.interface)
    return replace(config, network=replace(config.network, interface=address))
