"""How many satellite jobs the run wants asked for (launch.satellites), and when SLURM is told.

Rule: N of them once work has waited for `patience_s` longer than it has not (in every update there is a moment at which nothing waits, however
short of cells the run is); none once nothing has waited for `calm_s`, and none any more when every group of the run has begun: who joined
then would find little to do. Work waits while a micro-batch is held by no cell, a call finds
no cell, or the waterlevel is so high that every cell there is would be worth its place in rollout. Jobs that run stay until their end.

A refusal backs off: 1, 2, 4 … 30 minutes.
"""

import msgspec

from gyre_hpc.machines.base import Effect, Failed, Finished, Note, Start
from gyre_hpc.scheduler.base import Decision, Facts

KEEP = "satellites"
_MOST_BACK_OFF = 30
"""Times as long as usual."""


class SatellitePace(msgspec.Struct, frozen=True):
    """Seconds."""

    patience_s: float = 60.0
    calm_s: float = 300.0
    ask_every_s: float = 60.0
    """And after a refusal; doubled with each further one in a row."""


class KeepSatellites(msgspec.Struct, frozen=True, tag=True):
    """Submit or cancel satellite jobs until so many wait or run -> SatelliteJobs. Fails when SLURM does not answer."""

    wanted: int


class SatelliteJobs(msgspec.Struct, frozen=True, tag=True):
    """How it stands after the orders."""

    waiting: int
    running: int
    refused: str = ""
    """Why one that was wanted could not be submitted; empty: none was refused."""


class Satellites:
    """What the batch machine knows of them. `most`: launch.satellites; 0: none are asked for by the run itself."""

    def __init__(self, most: int, pace: SatellitePace) -> None:
        self._most, self._pace = most, pace
        self.wanted = 0
        self.jobs = SatelliteJobs(0, 0)
        self.refusals = 0
        """In a row."""
        self.refused = ""
        self.next_at = 0.0
        self._is_waiting = False
        """What the last look saw."""
        self._looked_at: float | None = None
        self._waited_s = 0.0
        """Rises while work waits, falls while none does; between 0 and patience_s."""
        self._calm_since: float | None = None
        self._is_asking = False

    def observe(self, now: float, facts: Facts, decision: Decision, calls_waiting: int, groups_left: int) -> None:
        """One look at the work. groups_left: of the run, not begun yet."""
        waits = facts.micro_batches_waiting > 0 or calls_waiting > 0 or decision.waterlevel.cells_needed >= facts.cells
        since_s = now - self._looked_at if self._looked_at is not None else 0.0
        self._waited_s = min(self._pace.patience_s, max(0.0, self._waited_s + (since_s if self._is_waiting else -since_s)))
        self._is_waiting, self._looked_at = waits, now
        if waits and groups_left > 0:
            self._calm_since = None
            if self._waited_s >= self._pace.patience_s:
                self.wanted = self._most
            return
        self._calm_since = now if self._calm_since is None else self._calm_since
        if groups_left <= 0 or now - self._calm_since >= self._pace.calm_s:
            self.wanted = 0

    def ask(self, now: float) -> list[Effect]:
        """Tell SLURM, if it is time to and there is something to tell."""
        if self._is_asking or now < self.next_at or not (self.wanted or self.jobs.waiting):
            return []
        self._is_asking = True
        return [Start(KEEP, KeepSatellites(self.wanted))]

    def told(self, now: float, ending: Finished | Failed) -> list[Effect]:
        """SLURM answered, or did not."""
        self._is_asking, before = False, self.jobs
        if isinstance(ending, Failed):
            return self._refuse(now, ending.reason)
        assert isinstance(ending.result, SatelliteJobs)
        self.jobs = ending.result
        effects: list[Effect] = []
        if (before.waiting, before.running) != (self.jobs.waiting, self.jobs.running):
            effects.append(Note("satellites", {"wanted": self.wanted, "waiting": self.jobs.waiting, "running": self.jobs.running}))
        if self.jobs.refused:
            return effects + self._refuse(now, self.jobs.refused)
        self.refusals, self.refused, self.next_at = 0, "", now + self._pace.ask_every_s
        return effects

    def _refuse(self, now: float, reason: str) -> list[Effect]:
        self.refusals += 1
        self.refused = reason
        wait_s = self._pace.ask_every_s * min(_MOST_BACK_OFF, 2 ** (self.refusals - 1))
        self.next_at = now + wait_s
        return [
            Note("satellites_refused", {"reason": reason, "refusals": self.refusals, "wait_s": wait_s}),
            Note("alarm", {"what": "satellites refused", "reason": reason}),
        ]
