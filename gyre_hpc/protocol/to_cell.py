"""batch -> cell: one whole document of what the cell should be and do. Newer `seq` replaces older; sent again until seen.

A cell never asks "what changed?": it compares the document with itself and moves towards it. So a lost, doubled or
reordered order does no harm.
"""

import msgspec

from gyre_hpc.protocol.identity import Role, Version
from gyre_hpc.protocol.train_groups import TrainGroups


class Lease(msgspec.Struct, frozen=True):
    """One micro-batch this cell may accumulate; its content is at `url` (msgpack of MicroBatch)."""

    id: str
    url: str
    num_tokens: int


class CommitOrder(msgspec.Struct, frozen=True):
    """Consolidate the batch: freeze, send a manifest, and once `address` is known join and reduce."""

    generation: int
    members: tuple[str, ...]
    """Cell names in rank order; the first is the core and the root of the reduce."""
    address: str | None = None
    """host:port of the core's store; None until the core said where it hosts."""
    nonce: str = ""
    """Members show it to each other before they join."""
    reduce: bool = False
    """True once all manifests together are the batch exactly once."""


class ApplyOrder(msgspec.Struct, frozen=True):
    """core only: make the optimizer step from the scratch sum. Idempotent by (update, manifest_hash)."""

    update: int
    manifest_hash: str
    num_executions: int
    """|S|: the scratch sum is divided by it before clipping."""
    version: Version
    """The version the step leads to."""
    consumed: TrainGroups = TrainGroups()
    """All groups consumed on the way to `version`; written into the checkpoint."""
    counters: dict[str, int] = {}
    """Counters of the batch machine (staleness gates, dispatch) as they are after this update; for the checkpoint."""
    is_last: bool = False
    """The run has no update after it: saved before it is reported, whatever checkpoint.every says."""


class FitOrder(msgspec.Struct, frozen=True):
    """core only: supervised warm start on the micro-batches at `urls`; leads to `version`. The core saves checkpoint
    `<lineage>.<step>` of `version` before it reports `fitted` (whatever before_publish says). Before a fit the weights are
    the random ones, version `0.-1`."""

    id: str
    urls: tuple[str, ...]
    epochs: int
    version: Version


class KvTarget(msgspec.Struct, frozen=True):
    """A cell that serves the same version and may take conversations over."""

    cell: str
    free_tokens: int
    """KV tokens it has room for, as it last said."""
    live_requests: int = 0


class KvOrder(msgspec.Struct, frozen=True):
    """What a cell that leaves rollout may do with its KV before its engine sleeps (DESIGN §4, step 3)."""

    targets: tuple[KvTarget, ...]
    """Empty: nobody can take anything; conversations are prefilled anew where they go on."""
    live: tuple[str, ...]
    """Executions that go on: only their conversations are worth moving."""
    budget_s: float
    """The switch budget: what has not moved by then is prefilled anew."""


class Order(msgspec.Struct, frozen=True, tag="order"):
    """What the cell should be and do now."""

    seq: int
    """Number of this document, monotone per cell and attempt."""
    term: int
    """Number of the role order; grows with each role change and fences everything older."""
    role: Role
    version: Version | None = None
    """rollout: serve this; train: start from this snapshot. None: whatever the cell has (before the first version).
    When it changes while the cell trains, the trainer wakes anew with it (its sum is zeroed) without leaving the role."""
    sources: tuple[str, ...] = ()
    """Base URLs of cells whose snapshot store has `version`; empty: own store or `checkpoint`."""
    checkpoint: str | None = None
    """Folder below the run folder to load as `version` when no cell has it."""
    is_core: bool = False
    update: int = -1
    """Batch being trained: the update this gradient leads from is `update` (version.step == update)."""
    fence: int = 0
    """This cell's fence number for the batch; a larger one voids all it holds."""
    leases: tuple[Lease, ...] = ()
    """Everything leased to this cell and not yet reported accumulated."""
    hand_in_to: str | None = None
    """Give your sum to the snapshot store at this URL (the core's), then go on with the role order."""
    accepted: tuple[tuple[str, int], ...] = ()
    """core only: (cell, fence) of hand-ins that count; others are dropped."""
    commit: CommitOrder | None = None
    apply: ApplyOrder | None = None
    fit: FitOrder | None = None
    save: bool = False
    """core only: the run is about to be stopped. Save the newest version at once if no checkpoint holds it, and each that comes after it."""
    kv: KvOrder | None = None
    """Set when the role becomes `train`, and the same for that whole term."""
