"""What the cell machine asks of its shell. Every action has a deadline; its result, if any, is named in the docstring.

Steps (everything but PullSnapshot, FetchMicroBatch, AbortReduce, Measure) are started one at a time.
"""

import msgspec

from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.to_batch import Applied, HandIn, KvFacts, Moved
from gyre_hpc.protocol.to_cell import ApplyOrder
from gyre_hpc.scheduler.migration import Move


class Action(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """`deadline_s`: the shell hands it to what it calls; the machine watches it with a timer too."""

    deadline_s: float


class CloseAdmission(Action, frozen=True, kw_only=True, tag=True):
    term: int


class OpenAdmission(Action, frozen=True, kw_only=True, tag=True):
    term: int


class ListConversations(Action, frozen=True, kw_only=True, tag=True):
    """Admission is closed; calls still run. Result: tuple[Conversation, ...] whose KV this engine could give away."""


class MoveKv(Action, frozen=True, kw_only=True, tag=True):
    """Give KV to other cells, in this order, until `deadline_s` (the switch budget); calls go on meanwhile, as full pages never
    change. What was given stays leased here until its target is known to read no more. Never fails for a target's sake.
    Result: MoveResult."""

    moves: tuple[Move, ...]


class AbortLive(Action, frozen=True, kw_only=True, tag=True):
    """End live requests, their tokens kept; those of `moved` are told where their KV went.
    Result: int, requests still live afterwards (must be 0)."""

    moved: tuple[Moved, ...] = ()


class QuietKv(Action, frozen=True, kw_only=True, tag=True):
    """Admission is closed. Wait until no other cell reads pages of this engine, or writes such as it had room for, any more.
    Result: int, leases and reservations still open (must be 0: their pages must not be freed)."""


class SleepEngine(Action, frozen=True, kw_only=True, tag=True):
    """Result: tuple[RankMemory, ...], one per rank."""


class WakeEngine(Action, frozen=True, kw_only=True, tag=True):
    """Result: tuple[RankMemory, ...], one per rank."""

    version: Version


class UpdateEngineWeights(Action, frozen=True, kw_only=True, tag=True):
    """Between two decode steps; admission stays open."""

    version: Version


class SleepTrainer(Action, frozen=True, kw_only=True, tag=True):
    """Result: tuple[RankMemory, ...], one per rank."""

    keep_sum: bool
    """True: every rank keeps its sum in host memory; False: it is dropped."""


class WakeTrainer(Action, frozen=True, kw_only=True, tag=True):
    """Take `version` from the own store; also while awake at another version.
    Result: tuple[RankMemory, ...], one per rank."""

    version: Version
    restore_sum: bool
    """True: go on with the sum kept in host memory; False: that is dropped, begin at zero."""


class PullSnapshot(Action, frozen=True, kw_only=True, tag=True):
    version: Version
    sources: tuple[str, ...]


class LoadCheckpoint(Action, frozen=True, kw_only=True, tag=True):
    """Parameters and optimizer from `folder` (below the run folder), as `version`, into the own store."""

    folder: str
    version: Version


class InitModel(Action, frozen=True, kw_only=True, tag=True):
    """Parameters of version zero: from model.path or random by the run's seed."""

    version: Version


class ZeroSum(Action, frozen=True, kw_only=True, tag=True):
    """Drop the sum and any scratch."""

    update: int
    fence: int


class FetchMicroBatch(Action, frozen=True, kw_only=True, tag=True):
    """Get the micro-batch and keep it until it is accumulated; others than `keep` may be forgotten."""

    id: str
    url: str
    keep: tuple[str, ...] = ()


class Accumulate(Action, frozen=True, kw_only=True, tag=True):
    """Add a fetched micro-batch to the sum of every rank. Result: MicroBatchFacts."""

    id: str


class HandInSum(Action, frozen=True, kw_only=True, tag=True):
    """Give the sum, awake or kept in host memory, to the store at `url`."""

    url: str
    update: int
    hand_in: HandIn


class HostGroup(Action, frozen=True, kw_only=True, tag=True):
    """core: open the generation's store. Result: str, host:port."""

    generation: int
    nonce: str


class Reduce(Action, frozen=True, kw_only=True, tag=True):
    """Sum over the members into the core's scratch; there the `accepted` hand-ins are added. world 1 needs no group."""

    generation: int
    address: str
    nonce: str
    rank: int
    world: int
    update: int
    accepted: tuple[tuple[str, int], ...] = ()


class AbortReduce(Action, frozen=True, kw_only=True, tag=True):
    """Break off a Reduce in progress; the Reduce then fails."""

    generation: int


class Apply(Action, frozen=True, kw_only=True, tag=True):
    """Optimizer step of every rank from the scratch of `generation`. Result: dict[str, float] metrics."""

    generation: int
    ask: ApplyOrder


class SaveCheckpoint(Action, frozen=True, kw_only=True, tag=True):
    """Write the trainer's state and `state` as checkpoint `version`, whole or not at all."""

    version: Version
    state: dict[str, object]


class Fit(Action, frozen=True, kw_only=True, tag=True):
    """Warm start. Progressed with the share done (float, 0..1). Result: dict[str, float] metrics."""

    id: str
    urls: tuple[str, ...]
    epochs: int
    version: Version


class Measure(Action, frozen=True, kw_only=True, tag=True):
    """Look at the cell. Result: Figures."""

    update: int
    """Hand-ins held for this update; earlier ones may be forgotten."""


class MoveResult(msgspec.Struct, frozen=True, kw_only=True):
    """What MoveKv achieved."""

    moved: tuple[Moved, ...] = ()
    """Conversations of which at least one page arrived; the rest of their KV is computed anew."""
    num_tokens: int = 0
    """Tokens whose KV was sent; those a target had already are not among them."""
    seconds: float = 0.0
    """Of the transfers, for the next plan's speed."""
    trouble: str = ""
    """Why something stayed behind; empty when all went."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What the shell sees; never decides a step, but for `snapshots` and `held`."""

    snapshots: tuple[Version, ...] = ()
    live_requests: int = 0
    held: tuple[HandIn, ...] = ()
    pids: tuple[int, ...] = ()
    engine_pids: tuple[int, ...] = ()
    groups_built: int = 0
    tokens: dict[str, int] = {}
    curve: tuple[tuple[float, float], ...] = ()
    cpu_s: float = 0.0
    kv: KvFacts = KvFacts()


class AppliedRecord(msgspec.Struct, frozen=True, tag="applied"):
    """Persisted by the core before an update is reported."""

    applied: Applied
    checkpoint: str | None
    """Version whose checkpoint holds it; None: only the core's memory does, so it counts for this incarnation alone."""


def step_name(action: object) -> str:
    """`WakeTrainer` -> `wake_trainer`: how timings, reports and keys call a step."""
    name = type(action).__name__
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
