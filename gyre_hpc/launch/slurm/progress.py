"""What an attempt brought, and whether a person stopped it: what the next start must know. By the run's files alone.

The crash-loop guard counts attempts that brought nothing.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.errors import UserError
from gyre_hpc.launch.slurm.chain import Fate, Next
from gyre_hpc.observability.events import Event
from gyre_hpc.observability.job_events import STARTED, TOLD, of_job
from gyre_hpc.protocol.journal import CallProgress
from gyre_hpc.protocol.people import Answer, CommandKind
from gyre_hpc.report.watch.signs import read_end
from gyre_hpc.shell.journal_files import records_in

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
        return any(isinstance(record, CallProgress) for record in records_in(path))
    except (OSError, ValueError, UserError):  # damaged: the next attempt will say so
        return False


def fruitless(folder: RunFolder, attempt: int) -> int:
    """How many attempts in a row, up to and with `attempt`, brought nothing by themselves. Not counted: those that SLURM took the nodes
    from, and what was before somebody's own start."""
    count = 0
    for number in range(attempt, 0, -1):
        if brought(folder, number):
            break
        events = of_job(folder, number)
        count += not any(event.fields.get("fate") in BLAMELESS for event in events if event.kind == TOLD)
        if _is_own_start(events):
            break
    return count


def allocations(folder: RunFolder, attempt: int) -> int:
    """How many followed one another, up to and with that of `attempt`, since somebody's own start."""
    own = (number for number in range(attempt, 0, -1) if _is_own_start(of_job(folder, number)))
    return attempt - next(own, 1) + 1


def is_stopped(folder: RunFolder, attempt: int) -> bool:
    """A person's stop was taken, and the job could not say any more that nothing follows: it was killed, or SLURM put it back by itself."""
    end = read_end(folder, attempt)
    if end is not None and end.next == Next.end.value:
        return False  # who starts it after that has decided so
    return any(_is_stop(path, attempt) for path in folder.commands.glob(folder.answer("*").name))


def _is_stop(path: Path, attempt: int) -> bool:
    try:
        answer = msgspec.json.decode(path.read_bytes(), type=Answer)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):  # nobody's word
        return False
    return (answer.attempt, answer.kind, answer.is_done) == (attempt, CommandKind.stop.value, True)


def _is_own_start(events: Sequence[Event]) -> bool:
    """Nobody but a person asked for the job."""
    return any(event.kind == STARTED and not event.fields.get("restarts") and not event.fields.get("asker") for event in events)
