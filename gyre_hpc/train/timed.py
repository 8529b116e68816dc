"""The timed trainer: the same interface, no torch, no model. It says how long the work would have taken and never waits.

Its sum has one slot per micro-batch ordinal and counts how often that micro-batch is inside, so that a rehearsal of the
whole control plane notices a gradient that is lost or counted twice: `apply` refuses any count but 0 and 1.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gyre_hpc.config.schema import Config
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.micro_batch import MicroBatch
from gyre_hpc.protocol.to_batch import MicroBatchFacts, RankMemory
from gyre_hpc.train import timed_checkpoint
from gyre_hpc.train.base import Trainer
from gyre_hpc.train.memory import measure
from gyre_hpc.transport.base import SnapshotStore

NUM_SLOTS = 16384
"""Micro-batches per update, at most."""


class TimedTrainer(Trainer):
    """Kind `timed`. `Sum` is float32 [NUM_SLOTS]. Only rank 0 of a cell counts; other ranks hold zeros."""

    def __init__(self, config: Config, *, store: SnapshotStore, rank: int = 0) -> None:
        self._trainer = config.trainer
        self._scale = config.engine.time_scale
        self._store = store
        self._rank = rank
        self._version: Version | None = None
        self._sum: np.ndarray | None = None

    def cost_s(self, action: str, num_tokens: int = 0) -> float:
        """Seconds: accumulate and fit by tokens, apply, and half of timed_switch_s for wake and for sleep; 0 for the rest."""
        costs = {
            "accumulate": num_tokens / self._trainer.timed_tokens_per_s,
            "fit": num_tokens / self._trainer.timed_tokens_per_s,
            "apply": self._trainer.timed_apply_s,
            "wake": self._trainer.timed_switch_s / 2,
            "sleep": self._trainer.timed_switch_s / 2,
        }
        return self._scale * costs.get(action, 0.0)

    def wake(self, version: Version) -> RankMemory:
        if self._version != version:
            self._store.get(version)
            self._version = version
        self._sum = np.zeros(NUM_SLOTS, dtype=np.float32)
        return measure(self._rank)

    def sleep(self) -> RankMemory:
        self._sum = None
        return measure(self._rank)

    def zero(self) -> None:
        self._awake_sum()[:] = 0.0

    def accumulate(self, micro_batch: MicroBatch) -> MicroBatchFacts:
        total = self._awake_sum()
        if micro_batch.version != self._version:
            raise ValueError(f"micro-batch {micro_batch.id} is for version {micro_batch.version}, this trainer has {self._version}")
        if self._rank == 0:
            total[_slot(micro_batch.id)] += 1.0
        return MicroBatchFacts(
            id=micro_batch.id,
            seconds=self.cost_s("accumulate", micro_batch.num_tokens),
            num_targets=micro_batch.num_targets,
            max_logprob_gap=0.0,
            num_on_policy=sum(sequence.on_policy.count(1) for sequence in micro_batch.sequences),
            loss_sum=0.0,
            clipped=0,
        )

    def sum(self) -> np.ndarray:
        return self._awake_sum()

    def add_sum(self, other: np.ndarray | None) -> None:
        if self._rank == 0:
            if other is None or other.shape != (NUM_SLOTS,):
                raise ValueError(f"handed-in sum does not have shape ({NUM_SLOTS},)")
            self._awake_sum()[:] += other

    def sum_to_bytes(self) -> bytes:
        return self._awake_sum().astype("<f4", copy=False).tobytes()

    def sum_from_bytes(self, data: bytes) -> np.ndarray:
        if len(data) != 4 * NUM_SLOTS:
            raise ValueError(f"handed-in sum has {len(data)} bytes, expected {4 * NUM_SLOTS}")
        return np.frombuffer(data, dtype="<f4").astype(np.float32)

    def apply(self, total: np.ndarray | None, num_executions: int, version: Version) -> dict[str, float]:
        """See base; grad_norm is the number of micro-batches. Raises ValueError when one is counted more than once."""
        if num_executions <= 0:
            raise ValueError(f"num_executions={num_executions}: a batch without executions makes no update")
        if self._rank == 0:
            if total is None or total.shape != (NUM_SLOTS,):
                raise ValueError(f"total of a batch does not have shape ({NUM_SLOTS},)")
            wrong = np.flatnonzero((total != 0) & (total != 1))
            if len(wrong):
                raise ValueError(f"micro-batch {int(wrong[0])} is {total[wrong[0]]:g} times in the sum of update to {version}")
        moved = 0.0 if total is None else float(total.sum())
        self._publish(version)
        return {"grad_norm": moved, "lr": self._trainer.lr, "clip_scale": 1.0, "update_norm": 0.0}

    def fit(self, micro_batches: list[MicroBatch], epochs: int, version: Version, progress: Callable[[float], None]) -> dict[str, float]:
        """Nothing is learned; the caller waits cost_s("fit", tokens)."""
        tokens = epochs * sum(micro_batch.num_tokens for micro_batch in micro_batches)
        progress(1.0)
        self._publish(version)
        return {"loss": 0.0, "tokens": float(tokens), "steps": float(epochs * len(micro_batches))}

    def save(self, folder: Path, state: dict[str, Any]) -> None:
        if self._version is None:
            raise ValueError("this trainer has no version to save")
        if self._rank == 0:
            timed_checkpoint.save(folder, self._version, state)

    def load(self, folder: Path, version: Version) -> dict[str, Any]:
        state = timed_checkpoint.load(folder)
        self._publish(version)
        return state

    def init(self, version: Version) -> None:
        self._publish(version)

    def _awake_sum(self) -> np.ndarray:
        if self._sum is None:
            raise ValueError("this trainer is asleep: wake it before it accumulates")
        return self._sum

    def _publish(self, version: Version) -> None:
        self._version = version
        self._store.put(version, {"timed.version": np.array([version.lineage, version.step], dtype=np.int64)})
        if self._sum is not None:
            self._sum[:] = 0.0


def _slot(micro_batch_id: str) -> int:
    """`<update>:<ordinal>` -> ordinal. Raises ValueError on anything else."""
    try:
        slot = int(micro_batch_id.rpartition(":")[2])
    except ValueError:
        raise ValueError(f"not a micro-batch id: {micro_batch_id!r} (expected <update>:<ordinal>)") from None
    if not 0 <= slot < NUM_SLOTS:
        raise ValueError(f"micro-batch {micro_batch_id}: the timed trainer counts {NUM_SLOTS} micro-batches per update")
    return slot
