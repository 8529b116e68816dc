"""Jobs written by hand. slurm/run.sbatch: `python -m gyre_hpc.launch.slurm prepare KEY=VALUE...` once in it, then `... node RUN` on each
node; slurm/satellite.sbatch: `... satellite RUN CELLS` on each node."""

import os
import sys

from gyre_hpc.clock import unix_s
from gyre_hpc.config.door import hydra_main
from gyre_hpc.config.schema import ClusterKind, Config
from gyre_hpc.errors import UserError


@hydra_main
def prepare(config: Config) -> int:
    """The run folder, as the launcher makes it before it submits. Raises UserError."""
    from gyre_hpc.launch.folder import claimed_folder, fill
    from gyre_hpc.launch.surroundings import check_inputs
    from gyre_hpc.observability.job_record import JobRecord, record_job

    if config.cluster.kind is not ClusterKind.slurm:
        raise UserError("cluster.kind", config.cluster.kind.name, "a job of SLURM needs cluster=slurm")
    check_inputs(config)
    with claimed_folder(config, unix_s()) as folder:
        folder.root.chmod(0o700)
        fill(folder, config)
        folder.jobs.mkdir(exist_ok=True)
        slurm = config.cluster.slurm
        record_job(folder, JobRecord(job=os.environ["SLURM_JOB_ID"], submitted=unix_s(), partition=slurm.partition,
                                     nodes=slurm.nodes, time_min=slurm.time_min, name=slurm.job_name))  # fmt: skip
    return 0


def main(argv: list[str]) -> None:
    """Does not return."""
    match argv[1:]:
        case ["prepare", *overrides]:
            sys.argv = [argv[0], *overrides]
            prepare()
        case ["node", run]:
            from gyre_hpc.launch.slurm.job import RunJob

            RunJob(os.path.abspath(run))()
        case ["satellite", run, cells] if cells.isdigit():
            from gyre_hpc.launch.slurm.satellite import SatelliteJob

            SatelliteJob(os.path.realpath(run), int(cells))()
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv)
