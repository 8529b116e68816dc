"""The configuration of a run, one dataclass per Hydra group. Validated once, at the door (validate.py); trusted inside.

Hydra 1.3 rules: not frozen, no Literal, enums match by member name. Nobody assigns to them after composing.
"""

import enum
from dataclasses import dataclass, field

from gyre_hpc.config.cluster_schema import Chain as Chain  # noqa: PLC0414  # everybody knows it from here
from gyre_hpc.config.cluster_schema import ClusterConfig as ClusterConfig  # noqa: PLC0414  # everybody knows it from here
from gyre_hpc.config.cluster_schema import ClusterKind as ClusterKind  # noqa: PLC0414  # everybody knows it from here
from gyre_hpc.config.cluster_schema import EnvironmentKind as EnvironmentKind  # noqa: PLC0414  # everybody knows it from here
from gyre_hpc.config.cluster_schema import LaunchConfig as LaunchConfig  # noqa: PLC0414  # everybody knows it from here
from gyre_hpc.config.cluster_schema import SlurmConfig as SlurmConfig  # noqa: PLC0414  # everybody knows it from here
from gyre_hpc.config.engine_schema import EngineConfig as EngineConfig  # noqa: PLC0414  # everybody knows it from here
from gyre_hpc.config.engine_schema import EngineKind as EngineKind  # noqa: PLC0414  # everybody knows it from here
from gyre_hpc.config.harness_schema import HarnessConfig as HarnessConfig  # noqa: PLC0414  # everybody knows it from here
from gyre_hpc.config.model_schema import ModelConfig as ModelConfig  # noqa: PLC0414  # everybody knows it from here


class SchedulerMode(enum.Enum):
    elastic = "elastic"
    colocate = "colocate"
    colocate_carry = "colocate_carry"
    # `async` is a keyword; the YAML key is async_split, shown to people as async.
    async_split = "async_split"


class Staleness(enum.Enum):
    window = "window"
    wait = "wait"
    soft = "soft"


class TrainerKind(enum.Enum):
    embedded = "embedded"
    timed = "timed"


class SandboxKind(enum.Enum):
    auto = "auto"
    none = "none"
    bwrap = "bwrap"


class Advantage(enum.Enum):
    grpo = "grpo"
    grpo_no_std = "grpo_no_std"


@dataclass(kw_only=True)
class PathsConfig:
    run: str = ""
    """Run folder; empty: outputs/<experiment>/<time>-<seed>."""
    scratch: str = ""
    """Node-local folder for workspaces and sockets; empty: a short folder below the system's temporary folder."""
    cache: str = ""
    """Warm starts, harnesses, models; empty: $XDG_CACHE_HOME/gyre_hpc or ~/.cache/gyre_hpc."""


@dataclass(kw_only=True)
class NetworkConfig:
    interface: str = "127.0.0.1"
    """What to bind to, found on each node: an address, the name of a network interface (ib0), a network (10.1.0.0/16), or `hostname` for the
    address that the node's own name has."""
    port_range: str = ""
    """`LOW-HIGH`, empty: any free port."""


@dataclass(kw_only=True)
class SchedulerConfig:
    mode: SchedulerMode = SchedulerMode.elastic
    theta0: float = 0.25
    """Lend while the marginal value of the last rollout cell is below this (rises to 1 with training pressure)."""
    lead_factor: float = 20.0
    lead_floor_s: float = 180.0
    """A lent cell must find at least max(lead_floor_s, lead_factor x measured switch+pull) seconds of ready work."""
    dwell_s: float = 300.0
    """A lent cell is not recalled for want of data before this."""
    split: int = 1
    """async: cells that train for the whole run."""
    staleness: Staleness = Staleness.wait
    max_staleness: int = 1
    concurrency_half: float = 8.0
    """Calls per cell at which its throughput is half saturated, until measured."""


@dataclass(kw_only=True)
class TrainerConfig:
    kind: TrainerKind = TrainerKind.embedded
    lr: float = 5e-4
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    micro_batch_tokens: int = 2048
    memory_limit_mb: int = 0
    """Device memory a rank may still use when its engine has gone to sleep; above it the cell does not train. 0: no limit."""
    timed_tokens_per_s: float = 20000.0
    timed_apply_s: float = 0.05
    timed_switch_s: float = 0.05


@dataclass(kw_only=True)
class AlgoConfig:
    updates: int = 12
    groups_per_batch: int = 12
    group_size: int = 8
    advantage: Advantage = Advantage.grpo
    clip_low: float = 0.2
    clip_high: float = 0.2
    truncated_is: float = 0.0
    """Upper bound of the importance weight; 0 = off."""
    j_max: int = 5
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    shuffle_rewards: bool = False
    """Control: the scores of each group are dealt out anew, and nothing in its advantages agrees with the true ones (learns nothing)."""


@dataclass(kw_only=True)
class SandboxConfig:
    kind: SandboxKind = SandboxKind.auto
    memory_mb: int = 256
    """Of all processes of an execution together, looked at twice a second; and of each one alone, held to by the kernel."""
    max_processes: int = 64
    disk_mb: int = 64
    """Of one file, and of /tmp."""
    cpu_s: int = 120
    """CPU seconds of one process."""


@dataclass(kw_only=True)
class SuiteConfig:
    name: str = "shell_drill"
    path: str = ""
    soft_deadline_s: float = 60.0
    hard_deadline_s: float = 75.0
    cpus: float = 0.05
    memory_mb: int = 64
    fruitless_window: int = 100
    """So many executions in a row that leave no token to train on end the run: something is wrong with sandbox, harness or tasks. 0: never."""


@dataclass(kw_only=True)
class TransportConfig:
    groups: str = "c10d"
    backend: str = "gloo"
    deadline_s: float = 30.0
    chunk_bytes: int = 1 << 20
    kv: str = "tcp"
    """How KV pages travel between cells: tcp, c10d (groups of two over `backend`), mooncake, memory (cells of one process), none
    (prefilled anew)."""
    kv_protocol: str = "tcp"
    """mooncake: tcp or rdma."""
    kv_device: str = ""
    """mooncake over RDMA: the devices, e.g. mlx5_0; empty: it looks for them."""
    kv_budget_s: float = 2.0
    """Longest that a cell on its way to training spends on giving its KV away."""


@dataclass(kw_only=True)
class TrackerConfig:
    tensorboard: bool = True


@dataclass(kw_only=True)
class WarmStartConfig:
    executions: int = 0
    """Scripted executions to imitate; 0: start from the model as it is."""
    epochs: int = 0
    lr: float = 2e-3
    batch_tokens: int = 8192
    sloppiness: float = 0.5
    """Share of requirements the scripted agents botch."""


@dataclass(kw_only=True)
class EvaluationConfig:
    tasks: int = 200
    before: bool = True
    after: bool = True


@dataclass(kw_only=True)
class GatewayConfig:
    progress_tokens: int = 64
    progress_s: float = 1.0
    table_lease_s: float = 5.0
    abandon_s: float = 30.0
    """Work of a client that left is cancelled after this without a retry."""
    keepalive_s: float = 15.0
    hold_s: float = 60.0
    """A client that does not stream hears nothing for this long; then its body begins, with a space every keepalive_s."""
    unread_s: float = 120.0
    """A client that has not read its whole answer this long after it was complete is hung up on."""
    max_calls: int = 64
    """Calls at once of one execution."""
    max_tokens_per_execution: int = 0
    """Sampled tokens of one execution; its requests beyond are refused. 0: no limit."""
    malformed_window: int = 200
    """So many tool calls in a row that could not be parsed end the run: parser and model do not belong together. 0: never."""
    max_body_bytes: int = 16 << 20
    body_deadline_s: float = 60.0
    """A request whose body is not complete this long after its headers is refused."""
    call_deadline_s: float = 600.0
    """Longest life of one call, waiting for a cell included."""


@dataclass(kw_only=True)
class JournalConfig:
    fsync: bool = True
    segment_bytes: int = 64 << 20


@dataclass(kw_only=True)
class ReplayConfig:
    enabled: bool = True
    """Executions whose process is gone (preemption, a lost node) go on from what was recorded; else they begin anew."""
    max_lives: int = 5
    """An execution that was begun so often is begun anew after that, under a new id."""


@dataclass(kw_only=True)
class CheckpointConfig:
    before_publish: bool = True
    every: int = 1
    keep: int = 2
    stop_s: float = 90.0
    """Longest that a stop in order waits for updates that no checkpoint holds yet to be saved; on SLURM it also leaves of
    cluster.slurm.signal_s what ending takes."""


@dataclass(kw_only=True)
class DebugConfig:
    record_inputs: bool = False
    keep_workspaces: bool = False
    """Leave workspaces in paths.scratch after scoring."""


@dataclass(kw_only=True)
class Config:
    """Everything a run is told. `config.yaml` in the run folder is this, composed."""

    experiment: str = "quickstart"
    seed: int = 0
    resume: str = ""
    """Run folder to resume; other keys then only override keys marked changeable."""
    paths: PathsConfig = field(default_factory=PathsConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    launch: LaunchConfig = field(default_factory=LaunchConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    algo: AlgoConfig = field(default_factory=AlgoConfig)
    harness: HarnessConfig = field(default_factory=HarnessConfig)
    sandbox: SandboxConfig = field(default_factory=SandboxConfig)
    suite: SuiteConfig = field(default_factory=SuiteConfig)
    transport: TransportConfig = field(default_factory=TransportConfig)
    tracker: TrackerConfig = field(default_factory=TrackerConfig)
    warm_start: WarmStartConfig = field(default_factory=WarmStartConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    gateway: GatewayConfig = field(default_factory=GatewayConfig)
    journal: JournalConfig = field(default_factory=JournalConfig)
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    debug: DebugConfig = field(default_factory=DebugConfig)
