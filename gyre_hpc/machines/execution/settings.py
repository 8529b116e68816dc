"""Numbers of a runner."""

from dataclasses import dataclass

from gyre_hpc.protocol.identity import shard_of


@dataclass(frozen=True, kw_only=True, slots=True)
class RunnerSettings:
    """Times in seconds."""

    runner: str
    incarnation: int
    gateways: tuple[str, ...]
    """All shards; an execution belongs to one of them for its whole life."""
    capacity: int
    """Executions at once, whatever they declare."""
    cpus: float
    memory_mb: float
    execution_cpus: float
    execution_memory_mb: float
    grace_s: float = 3.0
    """Between SIGTERM and SIGKILL; never more than a third of what lies between the soft and the hard deadline."""
    score_s: float = 10.0
    """For looking at one workspace, from its turn on."""
    report_s: float = 1.0
    coalesce_s: float = 0.05
    storage_retry_s: float = 5.0

    @property
    def room(self) -> int:
        """Executions whose declared cpus and memory fit."""
        by_cpus = int(self.cpus / self.execution_cpus + 1e-9) if self.execution_cpus > 0 else self.capacity
        by_memory = int(self.memory_mb / self.execution_memory_mb + 1e-9) if self.execution_memory_mb > 0 else self.capacity
        return max(0, min(self.capacity, by_cpus, by_memory))

    def shard(self, execution: str) -> str:
        """The gateway an execution belongs to; the same in every process and after every restart."""
        return shard_of(execution, self.gateways)
