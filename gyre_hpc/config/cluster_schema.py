"""Where a run lives and how it gets there: groups `cluster` and `launch` of the configuration.

Hydra 1.3 rules as in schema.py.
"""

import enum
from dataclasses import dataclass, field


class ClusterKind(enum.Enum):
    local = "local"
    slurm = "slurm"


class EnvironmentKind(enum.Enum):
    """How the nodes get the Python environment."""

    in_place = "in_place"
    """The environment of the submitting process, on a file system that every node sees."""
    archive = "archive"
    """Packed once per content at submit, unpacked to paths.scratch of each node."""
    container = "container"
    """What is in cluster.slurm.container."""


class Chain(enum.Enum):
    """What follows when an allocation ends before its run does."""

    requeue = "requeue"
    """The job is put back into the queue by itself."""
    successor = "successor"
    """A new job is submitted."""
    none = "none"
    """Nothing; `resume=RUN` by hand."""


class SatellitesAt(enum.Enum):
    """Who submits launch.satellites, and when."""

    run = "run"
    """The run, from its first node, while there is work for them: that node may submit jobs."""
    launch = "launch"
    """The launch, at once, all of them; they begin after the run's job did. For sites where compute nodes may not submit."""


@dataclass(kw_only=True)
class SlurmConfig:
    """What one allocation asks for. Empty or 0: the site's default."""

    nodes: int = 1
    gpus_per_node: int = 0
    """0: cells without GPUs; the cells of the run are spread evenly over the nodes."""
    cpus_per_node: int = 0
    memory_gb: int = 0
    time_min: int = 60
    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    signal_s: int = 120
    """Seconds before the time limit at which the job is told (SIGUSR2) to save."""
    job_name: str = ""
    """Empty: gyre-<experiment>-<seed>."""
    options: dict[str, str] = field(default_factory=dict)
    """More sbatch options, name without dashes -> value (`mail-user: me@site`); an empty value makes a flag."""
    srun_options: list[str] = field(default_factory=list)
    """More options of the srun that starts one supervisor per node."""
    setup: list[str] = field(default_factory=list)
    """Shell lines before the supervisor starts (`module load cuda`)."""
    container: str = ""
    """Image, as the site's container plugin of srun takes it (--container-image); for launch.environment=container."""
    node_silence_s: float = 30.0
    """A node that says nothing for so long is given up; it ends its processes by itself ten seconds before."""


@dataclass(kw_only=True)
class ClusterConfig:
    kind: ClusterKind = ClusterKind.local
    cells: int = 4
    ranks_per_cell: int = 1
    tensor_parallel: int = 0
    """Ranks that share one copy of the model, engine and trainer alike: 0 = all ranks of the cell; 1 = every rank trains on a copy of
    its own and the first one serves."""
    cells_per_process: int = 1
    """Cells that share a process, where nothing in them computes (engine=timed trainer=timed): for rehearsals with many of them."""
    gateways: int = 1
    runner_capacity: int = 24
    """Executions a runner runs at once; there is one runner per node."""
    runner_cpus: float = 2.0
    runner_memory_mb: int = 4096
    start_deadline_s: float = 120.0
    """A process that has not registered by then counts as a failed start."""
    switch_deadline_s: float = 60.0
    """Of each step of a role change: a rank that has not answered by then is named. A cell whose whole change takes 2.5 times as long
    is started again."""
    slurm: SlurmConfig = field(default_factory=SlurmConfig)


@dataclass(kw_only=True)
class LaunchConfig:
    wait: bool = False
    """Stay and show the run until it is over (cluster=slurm; a local run always does)."""
    dry_run: bool = False
    """Print what would be submitted, and how the cells would lie; submit nothing."""
    here: bool = False
    """Start cluster=local on a machine that is a login node of a SLURM cluster."""
    environment: EnvironmentKind = EnvironmentKind.in_place
    snapshot: bool = True
    """Run from a copy of the code in the run folder; false: from where it stands, for developers."""
    chain: Chain = Chain.requeue
    force: list[str] = field(default_factory=list)
    """With `resume=`: keys to change although they are not marked changeable. Of one start; never stored."""
    chain_limit: int = 1000
    """At most so many allocations one after the other."""
    satellites: int = 0
    """Extra jobs that are kept asked for while there is work for them; their cells join the run and may vanish at any time."""
    satellites_at: SatellitesAt = SatellitesAt.run
    satellite_nodes: int = 1
    satellite_partition: str = ""
    satellite_time_min: int = 60
