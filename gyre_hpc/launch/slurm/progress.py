"""What an attempt brought: the crash-loop guard counts attempts that brought nothing. By the run's files alone."""

from pathlib import Path

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.errors import UserError
from gyre_hpc.protocol.journal import CallProgress
from gyre_hpc.trajectory.segment import read_records

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
    """How many attempts in a row, up to and with `attempt`, brought nothing."""
    count = 0
    while count < attempt and not brought(folder, attempt - count):
        count += 1
    return count
