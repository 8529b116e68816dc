"""Checks of runs on SLURM: (field, value, remedy) of what cannot work, as validate.py asks them."""

from collections.abc import Iterator

from gyre_hpc.config.cluster_schema import Chain, ClusterKind, EnvironmentKind
from gyre_hpc.config.schema import Config
from gyre_hpc.config.validate_engine import Breach


def slurm(config: Config) -> Iterator[Breach]:
    """What one allocation asks for must fit together."""
    cluster, launch, asked = config.cluster, config.launch, config.cluster.slurm
    if cluster.kind is not ClusterKind.slurm:
        if launch.satellites:
            yield "launch.satellites", launch.satellites, "satellites are jobs of SLURM: set cluster=slurm, or launch.satellites=0"
        if launch.dry_run:
            yield "launch.dry_run", True, "only a job of SLURM can be shown without a start: set cluster=slurm, or leave it out"
        return
    if asked.nodes > 1 and config.network.interface.startswith("127."):
        yield "network.interface", config.network.interface, "other nodes cannot reach it: name a card, a network, or hostname"
    if launch.environment is EnvironmentKind.container and not asked.container:
        yield "cluster.slurm.container", "", "launch.environment=container needs an image"
    if asked.signal_s >= 60 * asked.time_min:
        yield "cluster.slurm.signal_s", asked.signal_s, f"must be below the time limit, cluster.slurm.time_min={asked.time_min} minutes"
    for name, value in asked.options.items():
        if not isinstance(value, str):  # a mapping within the mapping gets past the schema
            yield f"cluster.slurm.options.{name}", value, "must be a text, the value of one option of sbatch"
    if launch.chain is Chain.successor and "dependency" in asked.options:
        yield "cluster.slurm.options", asked.options["dependency"], "launch.chain=successor sets the dependency by itself"
