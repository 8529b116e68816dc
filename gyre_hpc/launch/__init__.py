"""Starts runs. One file per kind of cluster; process mains are named here and never imported."""

from gyre_hpc.config.schema import ClusterKind, Config
from gyre_hpc.errors import UserError


def start(config: Config) -> int:
    """Start the run that `config` describes; return its exit code, or 0 once it is submitted. Raises UserError."""
    match config.cluster.kind:
        case ClusterKind.local:
            from gyre_hpc.launch.local import main as here
            from gyre_hpc.launch.slurm.queue import is_login_node

            if not config.launch.here and is_login_node():
                remedy = "this is a login node of a SLURM cluster: submit with cluster=slurm, or start here with launch.here=true"
                raise UserError("cluster.kind", "local", remedy)
            return here(config)
        case ClusterKind.slurm:
            from gyre_hpc.launch.slurm.submit import main as submit

            return submit(config)
