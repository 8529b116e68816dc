"""A trainer whose model two processes hold together, behind the interface of one: whatever is asked is asked of both ranks."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from gyre_hpc.config.schema import Config
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.micro_batch import MicroBatch
from gyre_hpc.protocol.to_batch import MicroBatchFacts, RankMemory
from gyre_hpc.train.base import Trainer
from gyre_hpc.train.embedded import EmbeddedTrainer
from gyre_hpc.transport.snapshot_store import HostSnapshotStore
from tests.fakes import second_rank

_numbers = itertools.count(1)
_stores: dict[int, HostSnapshotStore] = {}
"""In the second rank's process: its own store beside each of the first rank's."""


def new_second(config: Config, vocab_size: int, store: int, dtype: torch.dtype) -> EmbeddedTrainer:
    """In the second rank's process."""
    own = _stores.setdefault(store, HostSnapshotStore())
    return EmbeddedTrainer(config, vocab_size=vocab_size, store=own, rank=1, world=second_rank.WORLD, dtype=dtype)


def store_of(number: int) -> HostSnapshotStore:
    """In the second rank's process."""
    return _stores[number]


def ignore(share: float) -> None:
    """The second rank reports no progress."""


class PairedTrainer(Trainer):
    """Rank 0 here, rank 1 there. Answers are rank 0's; what the second raises alone is raised, too."""

    def __init__(self, config: Config, *, vocab_size: int, store: HostSnapshotStore, dtype: torch.dtype = torch.float32) -> None:
        self._key = next(_numbers)
        number = store.__dict__.setdefault("paired", self._key)
        second_rank.get().make(self._key, __name__, "new_second", config, vocab_size, number, dtype)
        self.own = EmbeddedTrainer(config, vocab_size=vocab_size, store=store, rank=0, world=second_rank.WORLD, dtype=dtype)

    def _both(self, method: str, here: tuple[Any, ...], there: tuple[Any, ...]) -> Any:
        second = second_rank.get()
        second.send(method, self._key, *there)
        try:
            result = getattr(self.own, method)(*here)
        except Exception:
            try:
                second.hear()
            except Exception as error:  # noqa: BLE001 - rank 0's own error is the one to see
                assert error is not None
            raise
        second.hear()
        return result

    def wake(self, version: Version) -> RankMemory:
        memory: RankMemory = self._both("wake", (version,), (version,))
        return memory

    def sleep(self) -> RankMemory:
        memory: RankMemory = self._both("sleep", (), ())
        return memory

    def zero(self) -> None:
        self._both("zero", (), ())

    def accumulate(self, micro_batch: MicroBatch) -> MicroBatchFacts:
        facts: MicroBatchFacts = self._both("accumulate", (micro_batch,), (micro_batch,))
        return facts

    def sum(self) -> Any:
        return self._both("sum", (), ())

    def add_sum(self, other: Any) -> None:
        self._both("add_sum", (other,), (None,))

    def sum_to_bytes(self) -> bytes:
        return bytes(self._both("sum_to_bytes", (), ()))

    def sum_from_bytes(self, data: bytes) -> Any:
        return self.own.sum_from_bytes(data)

    def apply(self, total: Any, num_executions: int, version: Version) -> dict[str, float]:
        metrics: dict[str, float] = self._both("apply", (total, num_executions, version), (None, num_executions, version))
        return metrics

    def fit(self, micro_batches: list[MicroBatch], epochs: int, version: Version, progress: Callable[[float], None]) -> dict[str, float]:
        here, there = (micro_batches, epochs, version, progress), (micro_batches, epochs, version, ignore)
        result: dict[str, float] = self._both("fit", here, there)
        return result

    def save(self, folder: Path, state: dict[str, Any]) -> None:
        self._both("save", (folder, state), (folder, state))

    def load(self, folder: Path, version: Version) -> dict[str, Any]:
        state: dict[str, Any] = self._both("load", (folder, version), (folder, version))
        return state

    def init(self, version: Version) -> None:
        self._both("init", (version,), (version,))
