"""The SLURM jobs of a run: those that were submitted for it (jobs/*.json), as the queue shows them now."""

from dataclasses import dataclass

from gyre_hpc.observability.job_record import SATELLITE, JobRecord
from gyre_hpc.report.watch.squeue import LIVING, PENDING, Queue, QueueJob


@dataclass(frozen=True, kw_only=True, slots=True)
class Jobs:
    """Of one run."""

    submitted: tuple[JobRecord, ...]
    """Oldest first, those of satellites too."""
    queue: Queue | None
    """None: there is no SLURM here."""

    @property
    def newest(self) -> JobRecord | None:
        """Of the run itself."""
        return next((job for job in reversed(self.submitted) if job.kind != SATELLITE), None)

    def pending(self) -> QueueJob | None:
        return self._first(PENDING)

    def living(self) -> QueueJob | None:
        """It has nodes, or had them a moment ago."""
        return self._first(LIVING)

    @property
    def num_satellites(self) -> int:
        """Jobs of satellites that run now."""
        wanted = {job.job for job in self.submitted if job.kind == SATELLITE}
        return sum(job.state == "RUNNING" and job.id.partition("_")[0] in wanted for job in self.queue.jobs) if self.queue else 0

    @property
    def can_tell(self) -> bool:
        """The queue was heard of since the newest job was submitted, so that a job that it does not name is gone."""
        return self.is_heard_since(self.newest.submitted if self.newest is not None else 0.0)

    def is_heard_since(self, time: float) -> bool:
        """The queue that is known was asked after that (unix seconds)."""
        return self.queue is not None and self.queue.asked > time

    def _first(self, states: frozenset[str]) -> QueueJob | None:
        for submitted in reversed(self.submitted):
            job = self.queue.job(submitted.job) if self.queue is not None and submitted.kind != SATELLITE else None
            if job is not None and job.state in states:
                return job
        return None
