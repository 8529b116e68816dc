"""The one file that knows submitit: what an sbatch script of ours looks like, and how it gets into the queue.

submitit writes the script, pickles the job's function beside it and starts it by srun, one task per node (submitit 1.5). Its own
handling of signals and requeues is replaced by the job's (job.py): it loses a preemption without SIGUSR2 and races SLURM's own requeue.
"""

import contextlib
import io
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gyre_hpc.config.schema import Chain, Config, EnvironmentKind
from gyre_hpc.errors import UserError
from gyre_hpc.launch.slurm import queue
from gyre_hpc.launch.slurm.environment import CONTAINER_PYTHON, Archive, archive_of, make
from gyre_hpc.launch.slurm.refusal import never_starts, refused

_SURVIVING = ("--no-kill", "--kill-on-bad-exit=0", "--wait=0")
"""A node that dies, or a supervisor that ends, must not take the other nodes' with it."""

_NAMES = {
    "gpus_per_node": "gpus-per-node", "cpus_per_node": "cpus-per-task", "memory_gb": "mem", "account": "account", "qos": "qos",
    "constraint": "constraint",
}  # fmt: skip
"""Key of cluster.slurm -> option of sbatch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One job: `function(*arguments)` runs as the only task of each of its nodes."""

    name: str
    nodes: int
    time_min: int
    partition: str
    options: dict[str, Any]
    """sbatch options beside those above, names without dashes; True makes a flag."""
    setup: list[str]
    srun_options: list[str]
    python: str = ""
    """Shell command of the interpreter on a node; empty: this one."""
    archive: Archive | None = None
    """Packed before the job is submitted; None: the nodes see the interpreter."""
    prefix: str = "cluster.slurm."
    """Before a key of `asked` in what is told to people."""

    @property
    def asked(self) -> dict[str, object]:
        """By key of cluster.slurm: what SLURM may find wrong."""
        own = {"partition": self.partition, "nodes": self.nodes, "time_min": self.time_min}
        return own | {key: self.options.get(name, "") for key, name in _NAMES.items()}


def request_of(config: Config, code: Path | None, dependency: str = "") -> Request:
    """What a run asks SLURM for. code: folder that Python looks into first. dependency: as sbatch takes it. Raises UserError."""
    slurm, launch = config.cluster.slurm, config.launch
    values = {key: getattr(slurm, key) for key in _NAMES} | {"memory_gb": f"{slurm.memory_gb}G" if slurm.memory_gb else ""}
    archive = archive_of(config)
    options: dict[str, Any] = {"signal": f"USR2@{slurm.signal_s}", "no-kill": True, "open-mode": "append"}
    options["requeue" if launch.chain is Chain.requeue else "no-requeue"] = True
    options |= {name: values[key] for key, name in _NAMES.items() if values[key]}
    options |= {"dependency": dependency} if dependency else {}
    options |= {name: value or True for name, value in slurm.options.items()}
    srun = list(slurm.srun_options)
    if slurm.cpus_per_node:
        srun.append(f"--cpus-per-task={slurm.cpus_per_node}")
    if launch.environment is EnvironmentKind.container:
        srun.append(f"--container-image={slurm.container}")
    return Request(
        name=slurm.job_name or f"gyre-{config.experiment}-{config.seed}",
        nodes=slurm.nodes,
        time_min=slurm.time_min,
        partition=slurm.partition,
        options=options,
        setup=[*slurm.setup, *_paths(code)],
        srun_options=srun,
        python=CONTAINER_PYTHON if launch.environment is EnvironmentKind.container else "" if archive is None else archive.python,
        archive=archive,
    )


def script(request: Request, folder: Path) -> str:
    """The sbatch script as it would be submitted. Raises UserError."""
    executor = _executor(request, folder)
    return str(executor._make_submission_file_text(executor._submitit_command_str, "dry-run"))


def submit(request: Request, folder: Path, function: Callable[..., Any], *arguments: Any) -> str:
    """Job id, of one that SLURM took and may start. `folder` holds script, function and output of the job. Raises UserError with what
    SLURM said, OSError."""
    from submitit.core.utils import FailedJobError

    executor = _executor(request, folder)
    if request.archive is not None:
        make(request.archive, lambda line: print(line, flush=True))
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # submitit prints what it raises
            job = str(executor.submit(function, *arguments).job_id)
    except FailedJobError as error:
        raise refused(str(error), request.asked, request.prefix) from error
    if (trouble := never_starts(queue.job_fields(job).get("Reason", ""), request.asked, request.prefix)) is not None:
        queue.cancel(job)
        raise trouble
    return job


def _executor(request: Request, folder: Path) -> Any:
    from submitit.slurm.slurm import SlurmExecutor

    try:
        executor = SlurmExecutor(folder=folder, python=request.python or shlex.quote(sys.executable))
    except RuntimeError as error:
        raise UserError("cluster.kind", "slurm", "there is no SLURM here (srun is not on PATH); use cluster=local") from error
    executor.update_parameters(
        job_name=request.name,
        nodes=request.nodes,
        ntasks_per_node=1,
        wckey=None,
        time=request.time_min,
        setup=request.setup,
        srun_args=[*_SURVIVING, *request.srun_options],
        additional_parameters=request.options,
        **({"partition": request.partition} if request.partition else {}),
    )
    return executor


def _paths(code: Path | None) -> list[str]:
    """Lines of the script. PYTHONSAFEPATH: with `python -m` the folder that the job was submitted from, often a checkout, would come first."""
    if code is None:
        return []
    return ["export PYTHONSAFEPATH=1", f"export PYTHONPATH={shlex.quote(str(code))}${{PYTHONPATH:+:$PYTHONPATH}}"]
