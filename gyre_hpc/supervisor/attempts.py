"""Attempts: each start of a run claims a number by mkdir; whoever sees a higher one ends itself."""

from pathlib import Path

from gyre_hpc.config.run_folder import RunFolder


def highest_attempt(attempts: Path) -> int:
    """Highest number claimed so far; 0 if none."""
    if not attempts.is_dir():
        return 0
    return max((int(entry.name) for entry in attempts.iterdir() if entry.name.isdigit()), default=0)


def claim_attempt(attempts: Path) -> int:
    """Claim the next number. Two claims at once get two numbers: mkdir is atomic on shared file systems too."""
    attempts.mkdir(parents=True, exist_ok=True)
    number = highest_attempt(attempts) + 1
    while True:
        try:
            (attempts / str(number)).mkdir()
            return number
        except FileExistsError:
            number += 1


def end_of(folder: RunFolder, attempt: int) -> Path:
    """attempts/<n>/end.json: exit code, reason and unix time, written by the supervisor once every child is gone."""
    return folder.attempts / str(attempt) / "end.json"
