"""The batch being built: which groups are in it, which are prepared, what was handed in, how many executions count."""

from dataclasses import dataclass, field

from gyre_hpc.machines.batch.actions import PreparedGroup
from gyre_hpc.machines.batch.ledger import Ledger
from gyre_hpc.protocol.identity import GroupId


@dataclass(kw_only=True, slots=True)
class OpenBatch:
    """Batch of the update from step `update`."""

    update: int
    groups: list[GroupId] = field(default_factory=list)
    """Chosen, in the order they were."""
    full: bool = False
    reason: str = "no_groups"
    prepared: dict[GroupId, PreparedGroup] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)
    next_ordinal: int = 0
    accepted: list[tuple[str, int]] = field(default_factory=list)
    """(cell, fence) of sums in the core's host memory that count."""
    joined: set[str] = field(default_factory=set)
    """Satellites that leased after the batch had begun to be trained."""

    @property
    def num_executions(self) -> int:
        """|S| so far."""
        return sum(prepared.num_executions for prepared in self.prepared.values())

    @property
    def to_prepare(self) -> GroupId | None:
        """The next chosen group that has no micro-batches yet."""
        return next((id for id in self.groups if id not in self.prepared), None)

    @property
    def is_complete(self) -> bool:
        """Every group is in, prepared, and every micro-batch is in some sum."""
        return self.full and self.to_prepare is None and self.ledger.is_accumulated()

    def add_prepared(self, id: GroupId, prepared: PreparedGroup) -> None:
        self.prepared[id] = prepared
        for entry in prepared.micro_batches:
            self.ledger.add(entry.id, entry.num_tokens, entry.num_targets)
        self.next_ordinal += len(prepared.micro_batches)

    def void(self, cell: str) -> int:
        """`cell` is gone or fenced off; returns how many micro-batches are ready again. What it handed in is the core's."""
        return self.ledger.void(cell)

    def void_core(self, core: str) -> int:
        """The core's memory is gone, sums handed in to it too."""
        self.accepted.clear()
        return self.ledger.void(core)

    def take_hand_in(self, cell: str, fence: int, core: str, ids: tuple[str, ...]) -> bool:
        """The core holds `cell`'s sum; it counts if it is all that `cell` accumulated."""
        if (cell, fence) in self.accepted or not self.ledger.transfer(cell, core, ids):
            return False
        self.accepted.append((cell, fence))
        return True
