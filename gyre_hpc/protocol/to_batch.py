"""cell, gateway, runner -> batch: reports. Whole documents too, numbered; the newest wins, nothing is a one-time event."""

import enum

import msgspec

from gyre_hpc.protocol.identity import Version


class CellState(enum.Enum):
    """Lifecycle of a cell (DESIGN §4).

    starting -> rollout -> draining -> switching -> train -> handing_in -> switching -> rollout;  any -> lost -> starting
    """

    starting = "starting"
    rollout = "rollout"
    draining = "draining"
    switching = "switching"
    train = "train"
    handing_in = "handing_in"
    lost = "lost"


class RankMemory(msgspec.Struct, frozen=True):
    """Measured on one rank after it slept or woke; bytes."""

    rank: int
    free: int
    used: int


class SwitchTiming(msgspec.Struct, frozen=True):
    """One finished role change: seconds by step name, in order."""

    term: int
    direction: str
    """`rollout_to_train` or `train_to_rollout`."""
    steps: dict[str, float]


class HandIn(msgspec.Struct, frozen=True):
    """A sum another cell left in this cell's host memory."""

    cell: str
    fence: int
    ids: tuple[str, ...]


class CommitPhase(enum.Enum):
    """frozen (manifest stands) -> hosted (core only: address known) -> joined -> reduced, or failed."""

    frozen = "frozen"
    hosted = "hosted"
    joined = "joined"
    reduced = "reduced"
    failed = "failed"


class CommitReport(msgspec.Struct, frozen=True):
    """Where this cell is in the commit of `generation`."""

    generation: int
    phase: CommitPhase
    address: str | None = None
    manifest: tuple[str, ...] = ()
    """Micro-batch ids whose gradients are in this cell's sum (the core's includes accepted hand-ins)."""
    num_targets: int = 0
    reason: str = ""


class Applied(msgspec.Struct, frozen=True):
    """core: the newest update made, persisted before it is reported."""

    update: int
    manifest_hash: str
    version: Version
    metrics: dict[str, float] = {}


class MicroBatchFacts(msgspec.Struct, frozen=True):
    """Measured while accumulating one micro-batch."""

    id: str
    seconds: float
    num_targets: int
    max_logprob_gap: float
    """Largest |behavior - training log-prob| over its on-policy tokens; 0 when there are none."""
    num_on_policy: int
    loss_sum: float
    clipped: int
    """Targets whose ratio was clipped."""


class KvFacts(msgspec.Struct, frozen=True):
    """What others may count on of this cell's KV."""

    capability: str = "none"
    """none, pages, pd or shared (DESIGN §4)."""
    free_tokens: int = 0
    """Room for KV that comes from elsewhere, in tokens; what nobody holds counts as room."""
    decodes_for: str = ""
    """pd: the prefill cell whose KV this one takes over; empty: it takes nobody's."""


class Moved(msgspec.Struct, frozen=True):
    """The KV of the conversation whose newest call is `call` is at `cell` now."""

    call: str
    cell: str


class CellReport(msgspec.Struct, frozen=True, tag="cell_report"):
    """All of a cell's state that the batch machine needs; sent at every change and every heartbeat."""

    cell: str
    incarnation: int
    """Number of this start of the cell; grows with each restart."""
    seq: int
    order_seq: int
    """Newest order seen."""
    term: int
    """Newest role order obeyed (or being carried out)."""
    state: CellState
    version: Version | None = None
    """Served, or trained from."""
    snapshots: tuple[Version, ...] = ()
    snapshot_url: str = ""
    engine_url: str = ""
    live_requests: int = 0
    update: int = -1
    fence: int = 0
    accumulated: tuple[MicroBatchFacts, ...] = ()
    """Those in this cell's sum for (update, fence)."""
    spoiled: str = ""
    """Why the sum of (update, fence) counts no more, but for a hand-in; only a new fence begins another."""
    held: tuple[HandIn, ...] = ()
    handed_in: bool = False
    """The hand-in asked for by the current order was stored by the core."""
    train_tokens_per_s: float = 0.0
    commit: CommitReport | None = None
    applied: Applied | None = None
    fitted: str = ""
    """Id of the newest finished warm start."""
    saved: Version | None = None
    """Newest version of this incarnation that needs no saving: a checkpoint holds it, or it follows from the configuration."""
    save_s: float = 0.0
    """What the slowest save took; 0: none was made."""
    fit_progress: float = 0.0
    """Share of the warm start done, 0..1."""
    switch: SwitchTiming | None = None
    memory: tuple[RankMemory, ...] = ()
    memory_after: dict[str, tuple[RankMemory, ...]] = {}
    """Newest figures of all ranks after each of wake_engine, sleep_engine, wake_trainer, sleep_trainer; what was before a step stands
    under the one before it."""
    pids: tuple[int, ...] = ()
    """Of its ranks."""
    engine_pids: tuple[int, ...] = ()
    """Of the processes that its engine has beside the ranks: keeper and server of SGLang."""
    groups_built: int = 0
    """Communicators built inside the cell since its start (must not grow at a switch)."""
    tokens: dict[str, int] = {}
    """Engine counters: sampled, prefilled, cached, reprefilled."""
    curve: tuple[tuple[float, float], ...] = ()
    """Measured decode throughput: (calls running, tokens/s of the whole engine), ascending."""
    cpu_s: float = 0.0
    kv: KvFacts = KvFacts()
    moved: tuple[Moved, ...] = ()
    """Conversations that went elsewhere when this cell last left rollout (under `term`)."""
    error: str = ""
    """What went wrong and is not cured yet; a rank that does not answer is named here."""
    broken: str = ""
    """Why this cell itself does not work: its engine fails, a rank does not answer. Empty while it lacks only what others have to
    give (a snapshot, a disk, a peer)."""
    waiting: str = ""
    """What the cell waits for now, with its deadline; empty when it has nothing to wait for."""


class FirstCall(msgspec.Struct, frozen=True, tag="first_call"):
    """An execution's first model call was admitted to a cell serving `version`."""

    execution: str
    version: Version


class CallEnded(msgspec.Struct, frozen=True, tag="call_ended"):
    """A call reached its end in the journal."""

    execution: str
    call: str
    num_sampled: int
    continued_elsewhere: bool
    finish: str
    malformed: bool = False
    """The model wrote a tool call that could not be parsed."""


class ExecutionTakenUp(msgspec.Struct, frozen=True, tag="execution_taken_up"):
    """The new process of a life made its first request."""

    execution: str
    life: int
    num_tokens: int
    """Recorded before: what is at stake."""
    seconds: float
    """That its calls took."""


class CallReplayed(msgspec.Struct, frozen=True, tag="call_replayed"):
    """A call of an earlier life was asked for again, and need not be sampled again as far as it is recorded."""

    execution: str
    life: int
    num_tokens: int
    seconds: float


class ReplayDiverged(msgspec.Struct, frozen=True, tag="replay_diverged"):
    """A life asked something else than was recorded, for the first time."""

    execution: str


Fact = FirstCall | CallEnded | ExecutionTakenUp | CallReplayed | ReplayDiverged


class GatewayReport(msgspec.Struct, frozen=True, tag="gateway_report"):
    """One gateway shard: facts not yet acknowledged (by number) and its load."""

    shard: str
    incarnation: int
    seq: int
    table: int
    """Newest routing table in force here (the acknowledgement of DESIGN §4 step 1)."""
    first_fact: int
    """Number of facts[0]; the batch machine acknowledges through Table.acked."""
    facts: tuple[Fact, ...] = ()
    live_calls: int = 0
    waiting_calls: int = 0
    """Calls that have no cell at the moment."""
    tokens: dict[str, int] = {}
    """lost, resampled, unreceived, sampled, reprefilled."""
    cpu_s: float = 0.0
    storage_full: str = ""
    """Reason while the journal cannot be written; dispatch pauses."""


class ScoreState(enum.Enum):
    """Only `scored` and `partial` enter a group baseline."""

    scored = "scored"
    partial = "partial"
    unscored = "unscored"
    infra_error = "infra_error"


class Ended(msgspec.Struct, frozen=True):
    """An execution reached its end. `score` is None unless state is scored or partial."""

    execution: str
    state: ScoreState
    score: float | None
    """Fraction of requirements met, 0..1."""
    passed: bool = False
    reason: str = ""
    wall_s: float = 0.0
    parts: dict[str, float] = {}
    life: int = 0
    """Of the execution."""
    is_lost: bool = False
    """Its process is gone with its runner; what was recorded is good, another life can take it up."""


class RunnerReport(msgspec.Struct, frozen=True, tag="runner_report"):
    """One runner: what runs, what ended and was not yet acknowledged, what room is left."""

    runner: str
    incarnation: int
    seq: int
    assignment: int
    """Newest Assignment seen."""
    running: tuple[str, ...] = ()
    queued: tuple[str, ...] = ()
    """Assigned, waiting for cpus, memory or disk."""
    ended: tuple[Ended, ...] = ()
    capacity: int = 0
    """Executions this runner would run at once."""
    cpu_s: float = 0.0
    harness_cpu_s: float = 0.0
    storage_full: str = ""
