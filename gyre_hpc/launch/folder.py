"""What must lie in a run folder before its first process starts."""

import contextlib
import dataclasses
import secrets
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gyre_hpc.config.door import overrides_given
from gyre_hpc.config.place import claim_run_folder, outputs_above
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.config.stored import store_config
from gyre_hpc.errors import UserError
from gyre_hpc.launch.surroundings import check_surroundings
from gyre_hpc.launch.versions import NAME, keep_told, record_attempt
from gyre_hpc.observability.events import EventWriter
from gyre_hpc.runner.workspaces import remove_tree
from gyre_hpc.supervisor.attempts import claim_attempt
from gyre_hpc.supervisor.mirror import write_private


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A run folder and the attempt that this start owns."""

    folder: RunFolder
    attempt: int


def prepare(config: Config, unix_s: float) -> Claim:
    """Claim a run folder (a new one, or that of `resume`) and the next attempt in it. Raises UserError; then nothing new is left in it."""
    check_surroundings(config)
    with claimed_folder(config, unix_s) as folder:
        fill(folder, config)
        # After what was written: a folder that takes no writes must not end the attempt that may live there.
        return begin_attempt(folder, config)


def fill(folder: RunFolder, config: Config) -> None:
    """The run token and the configuration, before any attempt. Raises OSError."""
    folder.token.parent.mkdir(mode=0o700, exist_ok=True)
    if not folder.token.exists() or not folder.token.read_text().strip():
        write_private(folder.token, secrets.token_hex(32).encode())
    keep_told(folder)
    paths = dataclasses.replace(config.paths, run=str(folder.root))
    launch = dataclasses.replace(config.launch, force=[])
    store_config(dataclasses.replace(config, resume="", paths=paths, launch=launch), folder.config)


def begin_attempt(folder: RunFolder, config: Config) -> Claim:
    """Claim the next attempt; what it runs with is written down. Raises OSError."""
    claim = Claim(folder=folder, attempt=claim_attempt(folder.attempts))
    _record(claim)
    if claim.attempt == 1:
        _tell(claim, config)
    return claim


def _record(claim: Claim) -> None:
    """What it ran with is for people: a folder that is full by now does not end the attempt."""
    try:
        record_attempt(claim.folder, claim.attempt, overrides_given())
    except OSError as error:
        print(f"attempt {claim.attempt}: what it runs with could not be written down ({error})", file=sys.stderr)


@contextlib.contextmanager
def claimed_folder(config: Config, unix_s: float) -> Iterator[RunFolder]:
    """The run folder of this start. All or nothing: whatever is refused within, a new one is left as it was found, or not at all.
    Raises UserError, also for a folder that takes no writes (full, read-only, not ours)."""
    named = Path(config.paths.run).expanduser() if config.paths.run else outputs_above(config)
    missing = [path for path in (named, *named.parents) if not path.exists()]
    folder = claim_run_folder(config, unix_s)
    if folder.root not in missing and not config.paths.run:
        missing.insert(0, folder.root)
    try:
        yield folder
    except UserError:
        _undo(folder, config, missing)
        raise
    except OSError as error:
        if config.resume:
            raise UserError("resume", config.resume, f"cannot be written ({error}); make it writable, with free space") from error
        _undo(folder, config, missing)
        raise UserError("paths.run", str(folder.root), f"cannot be written ({error}); name another folder, with free space") from error


def _undo(folder: RunFolder, config: Config, made: list[Path]) -> None:
    """What this start put into a new run folder, and the folders that it had to make, deepest first, unless others use them by now."""
    if config.resume:
        return
    for path in (folder.config, folder.token.parent, folder.events_folder, folder.attempts, folder.jobs, folder.code):
        with contextlib.suppress(OSError):
            path.unlink() if path.is_file() else remove_tree(path)
    for path in made:
        with contextlib.suppress(OSError):
            path.rmdir()


def _tell(claim: Claim, config: Config) -> None:
    events = EventWriter(claim.folder.events(NAME, claim.attempt), NAME, claim.attempt)
    events.note(
        "run_started",
        {
            "experiment": config.experiment,
            "seed": config.seed,
            "updates": config.algo.updates,
            "cells": config.cluster.cells,
            "scheduler": config.scheduler.mode.value,
        },
    )
    events.close()
