"""Checkpoint of the timed trainer: state alone, under the same marker as a real one."""

import json
from pathlib import Path
from typing import Any

from gyre_hpc.protocol.identity import Version
from gyre_hpc.train import checkpoint_folder


def save(folder: Path, version: Version, state: dict[str, Any]) -> None:
    """Raises StorageFull."""

    def put(path: Path) -> None:
        path.write_text(json.dumps(state, indent=1) + "\n")

    checkpoint_folder.write(folder, version, {checkpoint_folder.STATE: put}, str(state.get("manifest_hash", "")))


def load(folder: Path) -> dict[str, Any]:
    """Raises FileNotFoundError (no marker) or ValueError (damaged)."""
    checkpoint_folder.check(folder)
    return checkpoint_folder.read_state(folder)
