"""Command lines of children. Process mains are named here and never imported."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from gyre_hpc.config.deadlines import cell_start_s, last_save_s
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config, EngineKind, TrainerKind
from gyre_hpc.machines.supervision import SupervisionSettings
from gyre_hpc.protocol.node_map import FIRST, NodeMap, local_map
from gyre_hpc.shell.arguments import arguments
from gyre_hpc.supervisor.devices import Places

MODULES = "gyre_hpc.processes"


@dataclass(frozen=True, kw_only=True, slots=True)
class Shared:
    """A process that several cells share (supervisor/shared.py)."""

    name: str
    """Unique in the run, as its log is."""
    stacks: Path
    """Where it writes its stacks if this command starts it."""
    stacks_of_cell: Path
    """Where people look for those of the cell."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """argv, and what its environment has beyond ours."""

    argv: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    shared: Shared | None = None
    """The child is a cell in this process, which argv starts where it does not live yet; None: a process of its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Commands:
    """Builds the command of any child of a run."""

    config: Config
    run: str
    """Absolute path of the run folder."""
    scratch: str
    """Absolute path of the run's folder on this node: it goes with the run."""
    attempt: int
    supervisor_url: str
    places: Places = field(default_factory=lambda: Places((), ()))
    """Which GPUs of this node each of its cells has."""
    parts: Mapping[str, int] = field(default_factory=dict)
    """Cell -> nodes that it lies on; one that is missing lies on one."""
    node: str = ""
    """Birth.node of the children."""
    card: str = ""
    """Network card of the job's interface; empty: loopback."""
    modules: str = MODULES
    """Package of the process mains; tests put stand-ins here."""

    def build(self, process: str, incarnation: int, part: int = 0, rendezvous: str = "") -> Command:
        """`gateway-0` is `python -m <modules>.gateway …`; a cell gets a torchrun rendezvous of its own, and one agent per node: `part`
        of those, and where part 0 of it listens."""
        kind = process.partition("-")[0]
        if kind == "cell" and self.config.cluster.cells_per_process > 1:
            return self._sharing(process, incarnation)
        tail = self._tail(process, incarnation)
        if kind != "cell":
            return Command(argv=[sys.executable, "-m", *tail])
        if is_torch_free(self.config):
            return Command(argv=[sys.executable, "-m", *tail], environment={"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"})
        return self._rendezvous(process, incarnation, part, rendezvous, tail)

    def _tail(self, process: str, incarnation: int) -> list[str]:
        """Module and arguments of any process main."""
        told = arguments(
            name=process, run=self.run, attempt=self.attempt, incarnation=incarnation, supervisor_url=self.supervisor_url,
            interface=self.config.network.interface, node=self.node,
        )  # fmt: skip
        return [f"{self.modules}.{process.partition('-')[0]}", *told]

    def _sharing(self, cell: str, incarnation: int) -> Command:
        """Neighbours by number share a process: all those of a node, wherever they come from."""
        number = int(cell.rpartition("-")[2]) // self.config.cluster.cells_per_process
        name = f"cells-{self.node}-{number}" if self.node else f"cells-{number}"
        folder = RunFolder(self.run)
        shared = Shared(
            name=name,
            stacks=folder.stacks(name, self.attempt, incarnation),
            stacks_of_cell=folder.stacks(cell, self.attempt, incarnation, 0),
        )
        return Command(argv=[sys.executable, "-m", *self._tail(name, incarnation)], shared=shared)

    def _rendezvous(self, cell: str, incarnation: int, part: int, rendezvous: str, tail: list[str]) -> Command:
        interface, parts = self.config.network.interface, self.parts.get(cell, 1)
        run_name = self.run.rstrip("/").rpartition("/")[2]
        # Without the -- argparse would take the tail for torchrun's own options.
        argv = [
            sys.executable, "-m", f"{MODULES}.cell_agent", "--part", str(part),
            "--nnodes", str(parts), "--nproc-per-node", str(self.config.cluster.ranks_per_cell // parts),
            "--rdzv-endpoint", rendezvous or f"{interface}:0", "--local-addr", interface,
            "--rdzv-id", f"{run_name}-{self.attempt}-{cell}-{incarnation}",
            "--max-restarts", "0", "--shutdown-timeout", "8", "--log-dir", f"{self.scratch}/torchrun", "-m", "--", *tail,
        ]  # fmt: skip
        # For the rendezvous kinds of torch 2.13, one of which hangs without it once it grows. Ours never grows.
        return Command(
            argv=argv,
            environment={
                "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
                **self._network(),
                **self._flight_recorder(cell, incarnation),
                **self.places.environment(cell),
            },
        )

    def _flight_recorder(self, cell: str, incarnation: int) -> dict[str, str]:
        """NCCL groups remember their newest collectives, and write them per rank beside the logs when one misses its deadline. Not tried
        on GPUs yet. What a person set stays."""
        if self.config.transport.backend != "nccl":
            return {}
        wanted = {
            "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
            "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
            "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{self.run}/logs/{cell}-{self.attempt}-{incarnation}.nccl-rank-",
        }
        return {name: value for name, value in wanted.items() if name not in os.environ}

    def _network(self) -> dict[str, str]:
        """Libraries that find an interface by themselves: NCCL, and the groups that an SGLang server makes. What a person set stays."""
        wanted = {"NCCL_SOCKET_IFNAME": f"={self.card}", "GLOO_SOCKET_IFNAME": self.card} if self.card else {}
        return {name: value for name, value in wanted.items() if name not in os.environ}


def is_torch_free(config: Config) -> bool:
    """Timed cells compute nothing: they need no torch, so no torchrun."""
    return config.engine.kind is EngineKind.timed and config.trainer.kind is TrainerKind.timed


def settings_for(config: Config, attempt: int, nodes: NodeMap | None = None, kind: str = "") -> SupervisionSettings:
    """Children of a run, and where they belong. nodes: None: all on one. kind: of the GPUs here."""
    cluster = config.cluster
    nodes = nodes or local_map(cluster.cells, cluster.ranks_per_cell, "")
    gateways = tuple(f"gateway-{index}" for index in range(cluster.gateways))
    settings = SupervisionSettings(
        attempt=attempt,
        services=("controller", *gateways, *nodes.runners),
        cells=tuple(place.cell for place in nodes.cells),
        extras=("scripted-0",) if config.warm_start.executions > 0 else (),
        places={place.cell: place.supervisors for place in nodes.cells} | {name: (where,) for name, where in nodes.runners.items()},
        hosts={node.supervisor: node.host for node in nodes.nodes if node.supervisor != FIRST},
        kind=kind,
        start_deadline_s=cluster.start_deadline_s,
        cell_start_deadline_s=cell_start_s(config),
        save_s=last_save_s(config),
    )
    return replace(settings, node_silence_ticks=round(cluster.slurm.node_silence_s / settings.tick_s))
