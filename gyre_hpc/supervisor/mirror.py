"""state/endpoints.json: the directory for people and tools, mode 0600, replaced by rename."""

from pathlib import Path

import msgspec

from gyre_hpc.protocol.supervision import Directory
from gyre_hpc.whole_file import write_whole


def write_private(path: Path, data: bytes) -> None:
    """Write by rename with mode 0600 from the first byte on, so that no reader sees half of it or more than is his."""
    write_whole(path, data, mode=0o600, durable=True)


def write_directory(path: Path, directory: Directory) -> None:
    """Raises OSError."""
    write_private(path, msgspec.json.format(msgspec.json.encode(directory)))
