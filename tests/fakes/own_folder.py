"""Folders of tests outside of pytest's own, and what killed processes leave there: gone with the tests, those of killed tests with the next."""

import atexit
import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from gyre_hpc.config.place import scratch_folder
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.config.stored import load_config
from gyre_hpc.errors import UserError


def own_folder(kind: str, above: Path | None = None) -> Path:
    """A new folder `gyre-<kind>-<pid>-…`, removed when this process ends; those of its kind whose process is gone are removed first."""
    above = above or Path(tempfile.gettempdir())
    for entry in above.glob(f"gyre-{kind}-*-*"):
        pid = entry.name.removeprefix(f"gyre-{kind}-").partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(entry, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"gyre-{kind}-{os.getpid()}-", dir=above))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def forget_scratch_at_exit(folder: RunFolder, config: Config | None = None) -> None:
    """Of a run that a test may kill with all its processes. config: None: as it is stored by then."""

    def forget() -> None:
        with contextlib.suppress(OSError, UserError):
            shutil.rmtree(scratch_folder(config or load_config(folder.config), folder), ignore_errors=True)

    atexit.register(forget)
