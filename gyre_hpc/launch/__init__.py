"""Starts runs. One file per kind of cluster; process mains are named here and never imported."""

from gyre_hpc.config.schema import ClusterKind, Config
from gyre_hpc.errors import UserError


def start(config: Config) -> int:
    """Start the run that `config` describes and stay with it; return its exit code."""
    match config.cluster.kind:
        case ClusterKind.local:
            from gyre_hpc.launch.local import main

            return main(config)
        case ClusterKind.slurm:
            raise UserError("cluster.kind", "slurm", "not built yet; start on this machine with cluster=local")
