"""What the first node is told by signals, and what it must do at once, because afterwards there may be no time (KillWait).

Invariants: the job is put back at its time limit only on SLURM's own word that it came: from then on scancel has no effect (tried with
22.05), so none is undone. What was final stays. A stop waits for no save into the end that SLURM has told.
"""

import contextlib
from collections.abc import Mapping

from gyre_hpc.clock import unix_s
from gyre_hpc.config.deadlines import save_within_s
from gyre_hpc.launch.folder import Claim
from gyre_hpc.launch.holding import Stop
from gyre_hpc.launch.slurm import queue
from gyre_hpc.launch.slurm.chain import FINAL, Fate, ends_at, fate_of
from gyre_hpc.launch.slurm.task import Task
from gyre_hpc.observability.events import EventWriter
from gyre_hpc.observability.job_events import JOB, TOLD


class Told:
    """The newest that SLURM said of the job."""

    def __init__(self, claim: Claim, task: Task, stop: Stop, *, successor: str, goes_on: bool) -> None:
        """successor: job that waits for the end of this one; empty: none. goes_on: this job is to be put back at its time limit."""
        self._claim, self._task, self._stop, self._goes_on = claim, task, stop, goes_on
        self._fate = Fate.unknown
        self.successor = successor
        self.is_put_back = False
        """The order was given, and SLURM took it."""

    def look(self, signal: str) -> None:
        """At the first signal of each kind. Orders come before words: the disk may hang."""
        fields = queue.job_fields(self._task.job)
        self._learn(fate_of(fields, self._task.restarts))
        told = {"job": self._task.job, "signal": signal, "fate": self._fate.value, "ordered": self._order()}
        if (ends := ends_at(fields)) is not None:
            self._stop.again_in(save_within_s(ends - unix_s()))
        say(self._claim, TOLD, told)

    def fate(self) -> Fate:
        """Asked again unless it was final."""
        if self._fate not in FINAL:
            self._learn(fate_of(queue.job_fields(self._task.job), self._task.restarts))
        return self._fate

    def _learn(self, fate: Fate) -> None:
        """A second signal may have come, and been answered, while SLURM was asked about the first."""
        if self._fate not in FINAL and fate is not Fate.unknown:
            self._fate = fate

    def _order(self) -> str:
        """What, as the event has it; somebody's cancel ends the successor too, as long as there is time to say so."""
        if self._fate is Fate.cancelled and self.successor:
            return queue.cancel(self.successor) or f"scancel {self.successor}"
        if self._fate is not Fate.timed_out or not self._goes_on or self.is_put_back:
            return ""
        trouble = queue.requeue(self._task.job)
        self.is_put_back = not trouble
        return trouble or "requeue"


def say(claim: Claim, kind: str, fields: Mapping[str, object]) -> None:
    """The only writer of events/job-<attempt>.jsonl."""
    with (
        contextlib.suppress(OSError),
        contextlib.closing(EventWriter(claim.folder.events(JOB, claim.attempt), JOB, claim.attempt)) as events,
    ):
        events.note(kind, fields)
