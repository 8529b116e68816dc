"""Files that are replaced whole: written beside their name, then renamed. A reader sees the old one or the new one.

A write that fails (a full disk) leaves the old file as it was, and nothing beside it.
"""

import os
from pathlib import Path


def write_whole(path: Path, data: bytes, *, mode: int = 0o666, durable: bool = False) -> None:
    """Replace `path` by `data`; `mode` (less the umask) holds from the first byte on, `durable` survives a power cut. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(path.name + ".tmp")
    # A stale one may have rights of its own.
    aside.unlink(missing_ok=True)
    try:
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(aside, path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise
