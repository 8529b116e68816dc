"""One execution as the runner's machine sees it."""

import enum
from dataclasses import dataclass

from gyre_hpc.protocol.identity import address
from gyre_hpc.protocol.to_runner import Begin


class Stage(enum.Enum):
    """Lifecycle.

    queued -> recording -> preparing -> running -> scoring -> over
                                          running -> stopping -> scoring | over (hard deadline)
    recording, preparing, scoring ------------------------------> over; any -> dropped
    """

    queued = "queued"
    recording = "recording"
    preparing = "preparing"
    running = "running"
    stopping = "stopping"
    scoring = "scoring"
    over = "over"
    """Its end is decided and being made durable."""


ACTIVE = frozenset({Stage.recording, Stage.preparing, Stage.running, Stage.stopping, Stage.scoring})
"""These take room."""


@dataclass(kw_only=True, slots=True)
class Life:
    """Mutable; owned by the machine."""

    begin: Begin
    stage: Stage = Stage.queued
    began_at: float = 0.0
    shortfall: str = ""
    """Why its score will be `partial`: soft deadline, broken limit, failed harness. Empty: it ended by its own rules."""
    dropped: bool = False
    """The batch machine wants it no more; it ends without a report."""

    @property
    def id(self) -> str:
        return self.begin.execution

    @property
    def number(self) -> int:
        """Which life of its execution it is."""
        return self.begin.life

    @property
    def address(self) -> str:
        """Of this very life."""
        return address(self.id, self.number)

    def key(self, verb: str) -> str:
        """Name of an action or timer of this execution."""
        return f"{verb}/{self.id}"
