"""state/endpoints.json: the directory for people and tools, mode 0600, replaced by rename."""

import os
from pathlib import Path

import msgspec

from gyre_hpc.protocol.supervision import Directory


def write_private(path: Path, data: bytes) -> None:
    """Write by rename with mode 0600 from the first byte on, so that no reader sees half of it or more than is his."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(path.name + ".tmp")
    aside.unlink(missing_ok=True)
    with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)


def write_directory(path: Path, directory: Directory) -> None:
    """Raises OSError."""
    write_private(path, msgspec.json.format(msgspec.json.encode(directory)))
