"""What must lie in a run folder before its first process starts."""

import dataclasses
import secrets
from dataclasses import dataclass

from gyre_hpc.config.place import claim_run_folder
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.config.stored import store_config
from gyre_hpc.observability.events import EventWriter
from gyre_hpc.supervisor.attempts import claim_attempt
from gyre_hpc.supervisor.mirror import write_private

NAME = "launch"


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A run folder and the attempt that this start owns."""

    folder: RunFolder
    attempt: int


def prepare(config: Config, unix_s: float) -> Claim:
    """Claim a run folder (a new one, or that of `resume`) and the next attempt in it. Raises UserError, OSError."""
    folder = claim_run_folder(config, unix_s)
    claim = Claim(folder=folder, attempt=claim_attempt(folder.attempts))
    folder.token.parent.mkdir(mode=0o700, exist_ok=True)
    if not folder.token.exists():
        write_private(folder.token, secrets.token_hex(32).encode())
    if not config.resume:
        _tell(claim, config)
    paths = dataclasses.replace(config.paths, run=str(folder.root))
    store_config(dataclasses.replace(config, resume="", paths=paths), folder.config)
    return claim


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
