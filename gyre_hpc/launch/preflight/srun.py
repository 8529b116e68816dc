"""A short job on nodes like those that a run would get, waited for: what `gyre preflight` asks from a login node."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence

from gyre_hpc.config.schema import Config
from gyre_hpc.errors import UserError
from gyre_hpc.launch.slurm.queue import cancel, job_fields
from gyre_hpc.launch.slurm.refusal import never_starts, refused

_MINUTES = 5
_SHOWN_LINES = 3
_PREFIX = "cluster.slurm."


def srun(config: Config, program: Sequence[str]) -> str:
    """Run `program` once on each node, to its end; the last lines of what went wrong. How long the job may wait in the queue is for the
    person to say, who is told that it does. Raises UserError when SLURM does not take the job, or would never start it."""
    lines: list[str] = []
    try:
        process = subprocess.Popen(
            srun_command(config, program), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
    except OSError as error:
        raise UserError("cluster.kind", "slurm", f"srun cannot be started here ({error}); use a login node of the cluster") from error
    with process:
        try:
            for line in process.stderr or ():
                lines.append(line.strip())
                if (queued := re.match(r"srun: job (\d+) queued", line)) is not None:
                    _look_at_queued(config, queued[1])
        except BaseException:
            process.terminate()
            raise
    if process.returncode and lines and all(line.startswith("srun: ") and not re.search(r"\btasks? ", line) for line in lines):
        raise refused("\n".join(lines), _asked(config), _PREFIX)
    return "; ".join(lines[-_SHOWN_LINES:])


def _look_at_queued(config: Config, job: str) -> None:
    reason = job_fields(job).get("Reason", "")
    if (trouble := never_starts(reason, _asked(config), _PREFIX)) is not None:
        cancel(job)
        raise trouble
    print(f"job {job} waits in the queue ({reason or 'SLURM does not say why'}); Ctrl-C gives it up", file=sys.stderr, flush=True)


def _asked(config: Config) -> dict[str, object]:
    return {key: getattr(config.cluster.slurm, key) for key in ("partition", "nodes", "gpus_per_node", "account", "qos", "constraint")}


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
