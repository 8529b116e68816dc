"""Where runs are that somebody may have meant who named a folder too high or too deep."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from gyre_hpc.clock import unix_s
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.errors import NoRun, UserError
from gyre_hpc.report.lines import span
from gyre_hpc.report.watch.watched import open_run, watch

SHOWN = 10
_DEEPEST = 4
"""Levels: those of outputs/ as launch.py and a sweep make them, and what lies above them."""
_FOLDERS = 2000
"""That are looked into, at most: a project's file system may be large, and slow."""


def where_runs_are(error: UserError) -> str:
    """What goes on with the message of `error`, where that is of a path that is no run folder."""
    return nearby(error.path) if isinstance(error, NoRun) else ""


def nearby(path: str) -> str:
    """What goes on with the sentence `name a run folder`: the run that `path` lies in; or the runs below it, a line each, the newest first."""
    given = Path(path).expanduser()
    if not os.path.exists(given):
        return "; there is nothing of that name"
    if (above := _above(given)) is not None:
        return f"; this lies in the run {above}"
    runs = list(_below(given))
    if not runs:
        return "; no run lies below it"
    newest = sorted(runs, key=_started, reverse=True)[:SHOWN]
    told = f"{len(runs)} runs lie below it, the newest first" if len(runs) > 1 else "one lies below it"
    lines = [f"  {run}  {_state(run)}" for run in newest]
    if len(runs) > SHOWN:
        lines.append(f"  and {len(runs) - SHOWN} older ones")
    return "\n".join([f"; {told}:", *lines])


def _above(path: Path) -> Path | None:
    return next((parent for parent in path.absolute().parents if RunFolder(parent).is_run), None)


def _below(root: Path) -> Iterator[Path]:
    """Level by level, so that a bound leaves out what lies deepest. Links are followed, and no folder is looked at twice: they may lead back."""
    level, seen, left = [root], {_identity(root)}, _FOLDERS
    for _ in range(_DEEPEST):
        looked, level = level[:left], []
        left -= len(looked)
        for entry in (entry for folder in looked for entry in _folders(folder)):
            if (identity := _identity(entry)) in seen:
                continue
            seen.add(identity)
            if RunFolder(entry).is_run:
                yield entry
            else:
                level.append(entry)


def _folders(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return sorted(entry for entry in folder.iterdir() if not entry.name.startswith(".") and os.path.isdir(entry))
    return []


def _identity(folder: Path) -> tuple[int, int]:
    try:
        facts = folder.stat()
    except OSError:  # gone meanwhile
        return 0, 0
    return facts.st_dev, facts.st_ino


def _started(run: Path) -> float:
    """Each start writes it."""
    try:
        return RunFolder(run).config.stat().st_mtime
    except OSError:
        return 0.0


def _state(run: Path) -> str:
    try:
        verdict = watch(open_run(run), patient=False).verdict
    except UserError as error:
        return f"damaged: {error.remedy}"
    ended = f" (exit code {verdict.exit_code})" if verdict.exit_code is not None else ""
    return f"{verdict.state.value.replace('_', ' ')}{ended}, started {span(unix_s() - _started(run))} ago"
