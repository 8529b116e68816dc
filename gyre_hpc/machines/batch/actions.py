"""What the batch machine asks the controller's shell to do, and what comes back."""

import msgspec

from gyre_hpc.protocol.identity import GroupId, Version
from gyre_hpc.protocol.to_batch import Ended
from gyre_hpc.protocol.train_groups import TrainGroups


class FindCheckpoint(msgspec.Struct, frozen=True, tag=True):
    """Newest whole checkpoint of the run -> Checkpoint | None."""


class Checkpoint(msgspec.Struct, frozen=True, tag=True):
    folder: str
    """Relative to the run folder, or absolute (cached warm start)."""
    version: Version
    update: int
    """Update that led to it; -1: warm start."""
    manifest_hash: str = ""
    consumed: TrainGroups = TrainGroups()
    """All groups consumed on the way to it."""
    counters: dict[str, int] = {}


class FindWarmStart(msgspec.Struct, frozen=True, tag=True):
    """Cached warm start for this task, template, tokenizer, model and seed -> Checkpoint | None."""


class StoreWarmStart(msgspec.Struct, frozen=True, tag=True):
    """Copy the checkpoint of `version` into the cache -> None. Failing costs only time."""

    version: Version


class PrepareGroup(msgspec.Struct, frozen=True, tag=True):
    """Journal -> trees -> admission -> advantage -> micro-batches, kept by the shell and served by id -> PreparedGroup."""

    group: GroupId
    ended: tuple[Ended, ...]
    update: int
    version: Version
    first_ordinal: int
    final: bool = False
    """False: fails with JournalIncomplete while some execution's last records are not in the journal yet. True: takes what is there."""


class PrepareWarm(msgspec.Struct, frozen=True, tag=True):
    """Journal of the scripted executions -> cross-entropy micro-batches -> PreparedGroup."""

    executions: tuple[str, ...]
    version: Version
    final: bool = False


class MicroBatchEntry(msgspec.Struct, frozen=True):
    """What the ledger needs of a prepared micro-batch."""

    id: str
    num_tokens: int
    num_targets: int


class PreparedGroup(msgspec.Struct, frozen=True, tag=True):
    """Facts of a prepared group; the arrays stay in the shell."""

    micro_batches: tuple[MicroBatchEntry, ...]
    num_executions: int
    """Scored or partial with |T_e| > 0: this group's share of |S|."""
    num_branching: int
    """Executions with more than one leaf."""
    num_trained_tokens: int
    num_trajectories: int = 0
    damaged: tuple[tuple[str, str], ...] = ()
    """(execution, why) whose journal contradicts itself: they count as infra_error."""


class ForgetMicroBatches(msgspec.Struct, frozen=True, tag=True):
    """Micro-batches of updates before `update` are consolidated: free them, and what is kept of `executions` -> None."""

    update: int
    executions: tuple[str, ...] = ()


class WriteStatus(msgspec.Struct, frozen=True, tag=True):
    """Rewrite status.json -> None."""

    status: dict[str, object]
