"""Command lines of children. Process mains are named here and never imported."""

import sys
from dataclasses import dataclass, field

from gyre_hpc.config.deadlines import cell_start_s
from gyre_hpc.config.schema import Config, EngineKind, TrainerKind
from gyre_hpc.machines.supervision import SupervisionSettings
from gyre_hpc.shell.arguments import arguments
from gyre_hpc.supervisor.devices import devices_of

MODULES = "gyre_hpc.processes"


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """argv, and what its environment has beyond ours."""

    argv: list[str]
    environment: dict[str, str] = field(default_factory=dict)


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
    devices: tuple[str, ...] = ()
    """GPUs of this node, for its cells."""
    modules: str = MODULES
    """Package of the process mains; tests put stand-ins here."""

    def build(self, process: str, incarnation: int) -> Command:
        """`gateway-0` is `python -m <modules>.gateway …`; a cell gets a torchrun rendezvous of its own."""
        kind = process.partition("-")[0]
        tail = [f"{self.modules}.{kind}"]
        tail += arguments(name=process, run=self.run, attempt=self.attempt, incarnation=incarnation, supervisor_url=self.supervisor_url)
        if kind != "cell":
            return Command(argv=[sys.executable, "-m", *tail])
        if is_torch_free(self.config):
            return Command(argv=[sys.executable, "-m", *tail], environment={"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"})
        return self._rendezvous(process, incarnation, tail)

    def _rendezvous(self, cell: str, incarnation: int, tail: list[str]) -> Command:
        interface = self.config.network.interface
        run_name = self.run.rstrip("/").rpartition("/")[2]
        # Without the -- argparse would take the tail for torchrun's own options.
        argv = [
            sys.executable, "-m", f"{MODULES}.cell_agent", "--interface", interface, "--port-range", self.config.network.port_range,
            "--nnodes", "1", "--nproc-per-node", str(self.config.cluster.ranks_per_cell),
            "--rdzv-backend", "gyre_c10d", "--rdzv-endpoint", f"{interface}:0", "--local-addr", interface,
            "--rdzv-id", f"{run_name}-{self.attempt}-{cell}-{incarnation}",
            "--max-restarts", "0", "--shutdown-timeout", "8", "--log-dir", f"{self.scratch}/torchrun", "-m", "--", *tail,
        ]  # fmt: skip
        # Without it a rendezvous that grows hangs in torch 2.13: rank 0 keeps the address of the first round.
        cluster = self.config.cluster
        devices = devices_of(cell, cluster.ranks_per_cell, cluster.cells, self.devices)
        return Command(argv=argv, environment={"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", **devices})


def is_torch_free(config: Config) -> bool:
    """Timed cells compute nothing: they need no torch, so no torchrun."""
    return config.engine.kind is EngineKind.timed and config.trainer.kind is TrainerKind.timed


def settings_for(config: Config, attempt: int) -> SupervisionSettings:
    """Children of the only node of a local run."""
    cluster = config.cluster
    gateways = tuple(f"gateway-{index}" for index in range(cluster.gateways))
    return SupervisionSettings(
        attempt=attempt,
        services=("controller", *gateways, "runner-0"),
        cells=tuple(f"cell-{index}" for index in range(cluster.cells)),
        extras=("scripted-0",) if config.warm_start.executions > 0 else (),
        start_deadline_s=cluster.start_deadline_s,
        cell_start_deadline_s=cell_start_s(config),
    )
