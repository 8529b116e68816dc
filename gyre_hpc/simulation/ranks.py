"""The ranks of one cell, each with an engine and a trainer in its device's memory. A rank may be deaf once, or keep its memory.

Invariants, whatever the machine believes: no rank has its engine and its trainer in memory together.
"""

from gyre_hpc.protocol.to_batch import RankMemory
from gyre_hpc.simulation.kernel import Violation
from gyre_hpc.simulation.process import Running

CAPACITY, LIMIT = 100, 30
_REST, _ENGINE, _TRAINER = 10, 60, 50
"""Bytes, so to say: only one of the two fits."""


class Ranks:
    def __init__(self, name: str, num: int) -> None:
        self._name, self._num = name, num
        self.engines: set[int] = set()
        self.trainers: set[int] = set()
        self._kept: set[int] = set()
        """Ranks whose engine sleeps and did not let go of its memory."""

    def sleep_engine(self, running: Running) -> tuple[RankMemory, ...]:
        heard = self._heard(running, "deaf")
        self._kept = {self._num - 1} if running.odd_rank == "keeps" and self.engines else set()
        self.engines -= heard
        return self._measured(heard)

    def wake_engine(self, running: Running) -> tuple[RankMemory, ...]:
        heard = self._heard(running, "deaf")
        self.engines |= heard
        self._check()
        return self._measured(heard)

    def sleep_trainer(self, running: Running) -> tuple[RankMemory, ...]:
        heard = self._heard(running, "deaf")
        self.trainers -= heard
        return self._measured(heard)

    def wake_trainer(self, running: Running) -> tuple[RankMemory, ...]:
        heard = self._heard(running, "deaf")
        self.trainers |= heard
        self._check()
        return self._measured(heard)

    def _heard(self, running: Running, fault: str) -> set[int]:
        """Ranks that do what they are told: all, or all but the last."""
        return set(range(self._num - (running.odd_rank == fault)))

    def _used(self, rank: int) -> int:
        return _REST + _ENGINE * (rank in self.engines or rank in self._kept) + _TRAINER * (rank in self.trainers)

    def _measured(self, ranks: set[int]) -> tuple[RankMemory, ...]:
        return tuple(RankMemory(rank, CAPACITY - self._used(rank), self._used(rank)) for rank in sorted(ranks))

    def _check(self) -> None:
        for rank in range(self._num):
            if self._used(rank) > CAPACITY:
                raise Violation(f"{self._name}: rank {rank} is out of memory: its engine and its trainer are awake together")
