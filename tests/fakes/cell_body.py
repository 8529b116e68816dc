"""Engine, trainer and store of a played cell, as they are whatever its machine believes."""

from gyre_hpc.machines.cell.actions import MoveKv
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.to_batch import HandIn, KvFacts
from gyre_hpc.scheduler.migration import Conversation


class Body:
    """What is true of engine, trainer and store, whatever the machine believes."""

    def __init__(self) -> None:
        self.engine: Version | None = None
        self.trainer: Version | None = None
        self.admission: int | None = None
        self.live = 0
        self.store: set[Version] = set()
        self.total: list[str] = []
        self.sum_at = (-1, 0)
        self.fetched: set[str] = set()
        self.accumulated: set[tuple[int, int, str]] = set()
        self.applied: list[Version] = []
        self.checkpoints: set[Version] = set()
        self.held: list[HandIn] = []
        self.kv = KvFacts()
        self.conversations: tuple[Conversation, ...] = ()
        self.leases = 0
        """Pages that others may read."""
        self.is_read = False
        """Others do not stop reading them before a test says so."""
        self.given: list[MoveKv] = []
        self.used: dict[int, int] = {}
        """Bytes a rank goes on using while its engine sleeps; others use 1."""
        self.tokens: dict[str, int] = {}
        self.curve: tuple[tuple[float, float], ...] = ()
