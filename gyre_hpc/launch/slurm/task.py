"""A process within its job, as SLURM's variables say."""

from collections.abc import Mapping
from dataclasses import dataclass

from gyre_hpc.allocation.hostlist import expand


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One of a job's tasks, of which each node has one. Source: srun(1), output environment variables."""

    job: str
    restarts: int
    """How often SLURM started the job again: with `job`, this start."""
    node: int
    """Place in `hosts`."""
    hosts: tuple[str, ...]

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> "Task":
        """Raises KeyError outside of a job step."""
        hosts = expand(environ["SLURM_JOB_NODELIST"], "SLURM_JOB_NODELIST")
        return cls(
            job=environ["SLURM_JOB_ID"],
            restarts=int(environ.get("SLURM_RESTART_COUNT", 0)),
            node=int(environ["SLURM_NODEID"]),
            hosts=hosts,
        )

    @property
    def argv(self) -> list[str]:
        """Of any supervisor."""
        return ["--job", self.job, "--restarts", str(self.restarts), "--host", self.hosts[self.node]]
