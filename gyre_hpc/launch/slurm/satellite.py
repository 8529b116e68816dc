"""Jobs whose cells join a run that is under way, and may vanish at any instant; and a machine that joins without SLURM.

A job's only task on each node holds a joining supervisor. It leaves in good order when it is told to. If SLURM means to preempt it then, it
puts itself back (SLURM does so only with jobs that did not end by themselves in their grace time) and joins again, while the run's newest
attempt lives; it ends when that is over.
"""

import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from urllib.parse import urlsplit

from gyre_hpc.clock import unix_s
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.errors import UserError
from gyre_hpc.launch.holding import hold_supervisor, stop_signals
from gyre_hpc.launch.slurm import queue
from gyre_hpc.launch.slurm.chain import Fate, fate_of
from gyre_hpc.launch.slurm.sbatch import Request, request_of, submit
from gyre_hpc.launch.slurm.snapshot import as_it_stands
from gyre_hpc.launch.slurm.task import Task
from gyre_hpc.observability.job_record import SATELLITE, JobRecord, record_job
from gyre_hpc.supervisor.joining import RunOver, newest_start


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """One satellite job. Empty or 0: as the run's own job has it (cells: as the node's GPUs allow)."""

    nodes: int = 1
    partition: str = ""
    time_min: int = 60
    cells: int = 0
    """Of each node."""
    options: Mapping[str, str] = field(default_factory=dict)
    """More sbatch options, name without dashes -> value; an empty value makes a flag."""
    dependency: str = ""
    """As sbatch takes it."""

    @classmethod
    def of(cls, config: Config) -> "Asked":
        """What the configuration of a run says of its satellites."""
        launch = config.launch
        return cls(nodes=launch.satellite_nodes, partition=launch.satellite_partition, time_min=launch.satellite_time_min)


@dataclass(frozen=True, slots=True)
class SatelliteJob:
    """The function of a satellite job, on each of its nodes; ends the process with the exit code."""

    run: str
    """Absolute path of the run folder."""
    cells: int

    def __call__(self) -> None:
        task, fields = Task.of(os.environ), dict[str, str]()
        name = f"supervisor-j{task.job}n{task.node}"

        def ask(signal: str) -> None:
            if task.node == 0 and not fields:  # the first signal's: later ones find it completing
                fields.update(queue.job_fields(task.job))

        code = hold(RunFolder(self.run), name, self.cells, task.hosts[task.node], at_signal=ask)
        if fate_of(fields, task.restarts) is Fate.preempted:
            print(f"preempted; back into the queue{_colon(queue.requeue(task.job))}", flush=True)
        sys.exit(code if code >= 0 else 1)


def hold(
    folder: RunFolder, name: str, cells: int, host: str = "", *, interface: str = "", at_signal: Callable[[str], None] | None = None
) -> int:
    """Join from this machine until the run is over or a signal comes; the supervisor's exit code. at_signal: called at the first one of each kind."""
    argv = ["--name", name, "--cells", str(cells)]
    for option, value in (("--host", host), ("--interface", interface)):
        argv += [option, value] if value else []
    with stop_signals(signal.SIGUSR2) as stop, hold_supervisor(folder, name, argv) as supervisor:
        stop.at_signal = at_signal
        stop.pass_on_to(supervisor)
        return supervisor.wait()


def check_joinable(folder: RunFolder, *, from_elsewhere: bool) -> None:
    """The run is under way, and listens where other nodes reach it. Raises UserError."""
    try:
        start = newest_start(folder)
    except RunOver as over:
        raise UserError("--run", str(folder.root), f"{over}; there is nothing to join") from over
    if start is None:
        raise UserError("--run", str(folder.root), "has not started yet: satellites join a run that is under way")
    host = urlsplit(start.url).hostname or ""
    if from_elsewhere and ip_address(host).is_loopback:
        raise UserError("network.interface", host, "other nodes cannot reach this run; start it with one that they can (or join by --here)")


def request_for(config: Config, folder: RunFolder, asked: Asked) -> Request:
    """The job as SLURM is asked for it. Raises UserError."""
    if asked.nodes < 1 or asked.time_min < 1:
        raise UserError("--nodes, --time", f"{asked.nodes}, {asked.time_min}", "give 1 or more of each")
    request = request_of(config, folder.code if (folder.code / "DONE").exists() else as_it_stands(), asked.dependency)
    options = {name: value for name, value in request.options.items() if name not in ("signal", "no-requeue")}
    options["requeue"] = True
    options |= {name: value or True for name, value in asked.options.items()}
    return replace(
        request,
        name=f"{request.name}-satellite",
        nodes=asked.nodes,
        time_min=asked.time_min,
        partition=asked.partition or request.partition,
        options=options,
        prefix="",
    )


def submit_satellite(config: Config, folder: RunFolder, asked: Asked) -> str:
    """Job id; told in jobs/<job>.json. Raises UserError with what SLURM said, OSError."""
    request = request_for(config, folder, asked)
    folder.jobs.mkdir(exist_ok=True)
    job = submit(request, folder.jobs, SatelliteJob(str(folder.root), asked.cells))
    record = JobRecord(job=job, kind=SATELLITE, submitted=unix_s(), partition=request.partition, nodes=request.nodes,
                       time_min=request.time_min, name=request.name)  # fmt: skip
    record_job(folder, record)
    return job


def submit_at_launch(config: Config, folder: RunFolder, job: str) -> list[str]:
    """The satellites of a run whose compute nodes may not submit: they wait for `job` to begin. Ids. Raises UserError, OSError."""
    asked = replace(Asked.of(config), dependency=f"after:{job}")
    return [submit_satellite(config, folder, asked) for _ in range(config.launch.satellites)]


def _colon(trouble: str) -> str:
    return f": {trouble}" if trouble else ""
