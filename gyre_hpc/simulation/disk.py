"""What outlives processes: logs, journals, checkpoints. Writes take time, may fail for a while, and may be cut by a crash."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from gyre_hpc.machines.call.actions import Earlier
from gyre_hpc.machines.call.earlier import earlier_of, is_over
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.journal import execution_of


@dataclass(frozen=True, slots=True, eq=False)
class SavedCheckpoint:
    version: Version
    weights: Any
    state: dict[str, Any]


@dataclass(slots=True)
class Disk:
    """The run folder."""

    logs: defaultdict[tuple[str, int], list[Any]] = field(default_factory=lambda: defaultdict(list))
    """(process, attempt) -> durable records. A gateway's is its journal."""
    checkpoints: dict[str, SavedCheckpoint] = field(default_factory=dict)
    """Whole ones, by folder."""
    warm_start: SavedCheckpoint | None = None
    """In the cache."""
    full_until: dict[str, float] = field(default_factory=dict)
    slow_until: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Process -> (until, longest write in seconds)."""

    def is_full(self, process: str, now: float) -> bool:
        return now < self.full_until.get(process, -1.0)

    def delay(self, process: str, now: float, dice: Any) -> float:
        """Seconds one write takes."""
        until, longest = self.slow_until.get(process, (-1.0, 0.0))
        if now < until:
            return float(dice.uniform(0.0, longest))
        return float(dice.uniform(0.001, 0.008))

    def journals(self) -> list[tuple[tuple[str, int], list[Any]]]:
        """Every shard's journal, of all attempts."""
        return [(key, records) for key, records in sorted(self.logs.items()) if key[0].startswith("gateway-")]

    def earlier(self, shard: str, attempt: int) -> tuple[Earlier, ...]:
        """As gateway/earlier.py: an execution stays with its shard."""
        found: defaultdict[str, dict[int, list[Any]]] = defaultdict(dict)
        for number in range(1, attempt):
            for record in self.logs[shard, number]:
                found[execution_of(record)].setdefault(number, []).append(record)
        return tuple(earlier_of(execution, by_attempt) for execution, by_attempt in found.items() if not is_over(by_attempt))

    def prune(self, keep: int) -> None:
        """As train/checkpoint_folder.py: all but the newest go."""
        ordered = sorted(self.checkpoints, key=lambda folder: self.checkpoints[folder].version)
        for folder in ordered[:-keep]:
            del self.checkpoints[folder]

    def checkpoint(self, folder: str) -> SavedCheckpoint | None:
        return self.checkpoints.get(folder)

    def newest(self) -> str | None:
        return max(self.checkpoints, key=lambda folder: self.checkpoints[folder].version, default=None)
