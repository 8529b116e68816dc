"""What an attempt brought: the crash-loop guard counts attempts that brought nothing. By the run's files alone."""

from pathlib import Path

import msgspec

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.errors import UserError
from gyre_hpc.launch.slurm.chain import Fate
from gyre_hpc.observability.events import Event
from gyre_hpc.protocol.journal import CallProgress
from gyre_hpc.trajectory.segment import read_records

JOB = "job"
"""Writer of the events that say which job an attempt belongs to."""
STARTED, TOLD, ENDED = "job_started", "job_told", "job_ended"
BLAMELESS = (Fate.preempted.value, Fate.requeued.value)
_APPLIED = b'"applied"'
"""Kind of the event that an optimizer step is made and durable."""


def brought(folder: RunFolder, attempt: int) -> bool:
    """Whether it made an update, or journaled a token that it sampled."""
    try:
        if _APPLIED in folder.events("controller", attempt).read_bytes():
            return True
    except OSError:
        pass
    return any(_has_token(path) for path in sorted(folder.journal.glob(f"*-{attempt}-*.gyj")))


def _has_token(path: Path) -> bool:
    try:
        records, _ = read_records(path.read_bytes())
    except (OSError, ValueError, UserError):  # damaged: the next attempt will say so
        return False
    return any(isinstance(record, CallProgress) for record in records)


def fruitless(folder: RunFolder, attempt: int) -> int:
    """How many attempts in a row, up to and with `attempt`, brought nothing by themselves. Not counted: those that SLURM took the nodes
    from, and what was before somebody's own start."""
    count = 0
    for number in range(attempt, 0, -1):
        if brought(folder, number):
            break
        events = of_job(folder, number)
        count += not any(event.fields.get("fate") in BLAMELESS for event in events if event.kind == TOLD)
        if any(event.kind == STARTED and not event.fields.get("restarts") and not event.fields.get("asker") for event in events):
            break
    return count


def of_job(folder: RunFolder, attempt: int) -> list[Event]:
    """What the job of that attempt said so far."""
    try:
        lines = folder.events(JOB, attempt).read_bytes().splitlines()
        return [msgspec.json.decode(line, type=Event) for line in lines if line]
    except (OSError, msgspec.MsgspecError):
        return []
