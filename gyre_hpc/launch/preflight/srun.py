"""A short job on nodes like those that a run would get, waited for: what `gyre preflight` asks from a login node."""

import os
import shlex
import subprocess
from collections.abc import Sequence

from gyre_hpc.config.schema import Config
from gyre_hpc.errors import UserError

_MINUTES = 5
_SHOWN_LINES = 3


def srun(config: Config, program: Sequence[str]) -> str:
    """Run `program` once on each node, to its end; the last lines of what went wrong. Raises UserError when SLURM does not take the job."""
    argv = srun_command(config, program)
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except OSError as error:
        raise UserError("cluster.kind", "slurm", f"srun cannot be started here ({error}); use a login node of the cluster") from error
    said = "; ".join(line.strip() for line in done.stderr.splitlines()[-_SHOWN_LINES:])
    if done.returncode and "Unable to allocate resources" in done.stderr:
        raise UserError("cluster.slurm", shlex.join(argv[1 : argv.index("--")]), f"SLURM does not give such nodes: {said}")
    return said


def srun_command(config: Config, program: Sequence[str]) -> list[str]:
    """The whole command line. sbatch's own options (cluster.slurm.options) are not for it, but those that choose nodes are."""
    slurm = config.cluster.slurm
    argv = ["srun", f"--nodes={slurm.nodes}", "--ntasks-per-node=1", f"--time={_MINUTES}", "--job-name=gyre-preflight", "--label"]
    argv += ["--kill-on-bad-exit=0", "--quit-on-interrupt"]
    chosen = {"partition": slurm.partition, "account": slurm.account, "qos": slurm.qos, "constraint": slurm.constraint}
    chosen["gpus-per-node"] = str(slurm.gpus_per_node or "")
    chosen |= {name: value for name, value in slurm.options.items() if name in _CHOOSE}
    argv += [f"--{name}={value}" for name, value in chosen.items() if value]
    argv += slurm.srun_options
    argv += [f"--container-image={slurm.container}"] if slurm.container else []
    argv += ["--overlap"] if "SLURM_JOB_ID" in os.environ else []
    if slurm.setup:
        return [*argv, "--", "bash", "-c", "\n".join([*slurm.setup, f"exec {shlex.join(program)}"])]
    return [*argv, "--", *program]


_CHOOSE = ("exclude", "nodelist", "reservation", "gres", "mem", "mem-per-cpu", "exclusive", "clusters")
"""Options of sbatch that say which nodes a job gets."""
