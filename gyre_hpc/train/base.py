"""What a cell needs of a trainer. One trainer per rank; every rank of the cell calls the same method in the same order.

Sums of several ranks: each rank accumulates its share of a micro-batch's sequences; `sum` and `sum_to_bytes` give the
whole cell's sum on every rank. `add_sum` and `apply` take what rank 0 passes; other ranks may pass None.

The trainer owns parameters and optimizer in both roles; the engine reads the snapshot store, never the trainer's
tensors. Gradients are *sums* in float32 over micro-batches (weights 1/|T_e| are inside the micro-batch); the division
by |S| and the clipping happen once, in `apply`, on the core.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.micro_batch import MicroBatch
from gyre_hpc.protocol.to_batch import MicroBatchFacts, RankMemory


class Trainer(ABC):
    """One rank's trainer. `Sum` is the backend's own type (embedded: one flat float32 tensor [num_parameters])."""

    @abstractmethod
    def wake(self, version: Version) -> RankMemory:
        """Take the parameters of `version` from the cell's snapshot store and allocate a zero sum."""

    @abstractmethod
    def sleep(self) -> RankMemory:
        """Release what training alone needs."""

    @abstractmethod
    def zero(self) -> None:
        """Drop the sum (new batch, or voided)."""

    @abstractmethod
    def accumulate(self, micro_batch: MicroBatch) -> MicroBatchFacts:
        """Add the micro-batch's gradient to the sum. Raises ValueError when its version is not the awake one."""

    @abstractmethod
    def sum(self) -> Any:
        """The sum itself: read it, do not write it (DESIGN §7: no one touches its own sum in a commit)."""

    @abstractmethod
    def add_sum(self, other: Any) -> None:
        """Add a sum that was handed in."""

    @abstractmethod
    def sum_to_bytes(self) -> bytes:
        """The sum as float32 little-endian bytes, for a hand-in."""

    @abstractmethod
    def sum_from_bytes(self, data: bytes) -> Any:
        """Inverse. Raises ValueError on a wrong length."""

    @abstractmethod
    def apply(self, total: Any, num_executions: int, version: Version) -> dict[str, float]:
        """core: gradient = total / num_executions, clip, optimizer step, put snapshot `version` into the store.
        Returns grad_norm, lr, clip_scale, update_norm."""

    @abstractmethod
    def fit(self, micro_batches: list[MicroBatch], epochs: int, version: Version, progress: Callable[[float], None]) -> dict[str, float]:
        """core: warm start by cross-entropy; ends with snapshot `version` and a fresh optimizer. Returns loss, tokens."""

    @abstractmethod
    def save(self, folder: Path, state: dict[str, Any]) -> None:
        """Checkpoint: write aside, fsync, rename, marker last. `state` (JSON) goes into state.json."""

    @abstractmethod
    def load(self, folder: Path, version: Version) -> dict[str, Any]:
        """Load parameters and optimizer, put snapshot `version` into the store, return `state`.
        Raises FileNotFoundError if the marker is missing, ValueError if a file is damaged."""

    def cost_s(self, action: str, num_tokens: int = 0) -> float:
        """Seconds the caller must let pass after `action` (a method's name; num_tokens for accumulate and fit) before it
        goes on: what a trainer that only pretends would have taken. 0 for trainers that work."""
        return 0.0

    @abstractmethod
    def init(self, version: Version) -> None:
        """Parameters from model.path or from random numbers of the run seed; put snapshot `version` into the store."""
