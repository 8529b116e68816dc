"""What an attempt brought: the crash-loop guard counts attempts that brought nothing. By the run's files alone."""

from pathlib import Path

import msgspec

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.errors import UserError
from gyre_hpc.observability.events import Event
from gyre_hpc.protocol.journal import CallProgress
from gyre_hpc.trajectory.segment import read_records

JOB = "job"
"""Writer of the events that say which job an attempt belongs to."""
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
    """How many attempts in a row, up to and with `attempt`, brought nothing. What was before somebody's own start counts no more."""
    count = 0
    for number in range(attempt, 0, -1):
        if brought(folder, number):
            break
        count += 1
        if _is_by_hand(folder, number):
            break
    return count


def _is_by_hand(folder: RunFolder, attempt: int) -> bool:
    """A person decided on this attempt: neither SLURM nor a job asked for it."""
    try:
        lines = folder.events(JOB, attempt).read_bytes().splitlines()
        events = [msgspec.json.decode(line, type=Event) for line in lines if b'"job_started"' in line]
    except (OSError, msgspec.MsgspecError):
        return False
    return any(not event.fields.get("restarts") and not event.fields.get("asker") for event in events)
