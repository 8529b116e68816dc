"""A run of `launch.py` as a child of the benchmark: started, found with all that belongs to it, and dead afterwards."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Self

from benchmarks.chaos.family import Family
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.observability.status import Status, read_status


class LaunchedRun:
    """Use as a context manager; whatever it started is dead after it."""

    def __init__(self, folder: Path, *overrides: str, resumes: bool = False) -> None:
        """resumes: the run in `folder` goes on; otherwise it is a new one. What it prints goes to a file beside the folder."""
        self.folder = RunFolder(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        self.out = folder.parent / f"{folder.name}.printed"
        self.family = Family()
        with self.out.open("wb") as out:
            self._child = subprocess.Popen(
                [sys.executable, "launch.py", f"{'resume' if resumes else 'paths.run'}={folder}", *overrides],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, env={**os.environ, **self.family.environment},
            )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()
        self._child.wait()
        self.family.end()

    @property
    def pid(self) -> int:
        """Of the launcher."""
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        """None while it lives."""
        return self._child.poll()

    @property
    def status(self) -> Status | None:
        """None before the run wrote its first."""
        return read_status(self.folder.status)
