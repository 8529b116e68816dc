"""Where a check works: a temporary folder, gone with it. One that a killed check left behind goes with the next check.

A folder is in use as long as somebody holds the lock on its mark; a folder that is kept for a person has none.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PREFIX, _MARK = "gyre-rehearsal-", "in_use"


@contextlib.contextmanager
def place(*, keep: bool) -> Iterator[Path]:
    """A new folder, removed at the end unless it is to be kept."""
    _sweep(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    mark = folder / _MARK
    with mark.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            if keep:
                mark.unlink(missing_ok=True)
            else:
                shutil.rmtree(folder, ignore_errors=True)


def _sweep(above: Path) -> None:
    for mark in above.glob(f"{_PREFIX}*/{_MARK}"):
        # Somebody else's, or just going.
        with contextlib.suppress(OSError), mark.open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Locked between its creation and its owner's lock it is empty: that owner is about to write there.
            if os.fstat(held.fileno()).st_nlink and any(one.name != _MARK for one in mark.parent.iterdir()):
                shutil.rmtree(mark.parent, ignore_errors=True)
