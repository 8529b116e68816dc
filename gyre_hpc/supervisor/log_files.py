"""logs/<process>.log: what a child prints, bounded. One writer per file: the children of one node, cut by that node's supervisor.

The child has the file itself, so that its last words survive whatever ends it or us. A file that is too large is copied to `.1` (what was
there moves to `.2` and so on) and begins anew. The children append, so they go on at its beginning; what they write between the copy's
last byte and the cut, some microseconds, is lost.
"""

import contextlib
import logging
import math
import os
import shutil
from pathlib import Path
from typing import BinaryIO

from gyre_hpc.shell.timers import until

LARGEST = 50 << 20
"""Bytes of one file."""
KEPT = 3
"""Older ones."""
LOOK_EVERY_S = 10.0
log = logging.getLogger(__name__)


def open_log(path: Path, largest: int = LARGEST) -> BinaryIO:
    """For a child that is about to start. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    bound(path, largest)
    return open(path, "ab")


def bound(path: Path, largest: int = LARGEST) -> None:
    """Cut it if it is too large. A disk that takes no copy: it is cut all the same, with what is there lost; else it would stay full."""
    try:
        if path.stat().st_size <= largest:
            return
    except OSError:  # not there yet
        return
    with contextlib.suppress(OSError):
        for number in range(KEPT - 1, 0, -1):
            older = _numbered(path, number)
            if older.exists():
                os.replace(older, _numbered(path, number + 1))
    try:
        _copy_and_cut(path)
    except OSError as error:
        log.warning("%s cannot be kept (%s); it begins anew", path, error)
        with contextlib.suppress(OSError):
            _numbered(path, 1).unlink(missing_ok=True)
            os.truncate(path, 0)


async def keep_small(path: Path) -> None:
    """As long as somebody writes there: until we are cancelled."""
    await until(lambda: bound(path), LOOK_EVERY_S, math.inf)


def _copy_and_cut(path: Path) -> None:
    with open(path, "r+b") as file, open(_numbered(path, 1), "wb") as copy:
        shutil.copyfileobj(file, copy, 1 << 20)
        # The copy took its time: what came meanwhile.
        while rest := file.read():
            copy.write(rest)
        file.truncate(0)


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")
