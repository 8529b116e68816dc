"""Workspaces: one folder per execution below paths.scratch, made from the task, removed after scoring.

Beside each lies the home folder of its harness: settings and notes of the program, no part of what is scored.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from gyre_hpc.protocol.identity import ExecutionId
from gyre_hpc.suites.base import Task

_REMOVAL_DEADLINE_S = 60.0


class Workspaces:
    """The folders of one runner."""

    def __init__(self, root: Path, *, keep: bool = False) -> None:
        self._root, self._keep = root, keep

    def path(self, execution: str) -> Path:
        """Where its workspace is. Raises ValueError if `execution` is no execution id."""
        return self._root / str(ExecutionId.parse(execution))

    def home(self, execution: str) -> Path:
        """Where the home of its harness is. Raises ValueError like `path`."""
        return self.path(execution).with_suffix(".home")

    def sweep(self) -> None:
        """Remove what an earlier life left. Raises OSError."""
        self._root.mkdir(mode=0o700, exist_ok=True)
        if not self._keep:
            for entry in self._root.iterdir():
                remove_tree(entry)

    def prepare(self, execution: str, task: Task) -> Path:
        """A fresh workspace with the task's files. Raises ValueError for a file outside of it, OSError."""
        workspace = self.path(execution)
        if workspace.exists():
            remove_tree(workspace)
        workspace.mkdir(mode=0o700)
        for name, text in task.files.items():
            write_inside(workspace, name, text)
        return workspace

    def furnish(self, execution: str, files: Mapping[str, str]) -> Path:
        """A fresh home with the harness's files. Raises ValueError for a file outside of it, OSError."""
        home = self.home(execution)
        if home.exists():
            remove_tree(home)
        home.mkdir(mode=0o700)
        for name, text in files.items():
            write_inside(home, name, text)
        return home

    def remove(self, execution: str) -> None:
        """Delete it and the home, unless debug.keep_workspaces. Raises OSError."""
        for folder in (self.path(execution), self.home(execution)):
            if not self._keep and folder.exists():
                remove_tree(folder)


def write_inside(workspace: Path, name: str, text: str) -> None:
    """Write one file. Never leaves the workspace, never follows or replaces what is there."""
    relative = PurePosixPath(name)
    if relative.is_absolute() or ".." in relative.parts or not relative.parts or "\0" in name:
        raise ValueError(f"file {name!r} does not stay in its folder")
    path = workspace
    for part in relative.parts[:-1]:
        path = path / part
        path.mkdir(exist_ok=True)
        if path.is_symlink():
            raise ValueError(f"file {name!r} leads through a link")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with open(os.open(path / relative.parts[-1], flags, 0o644), "w", encoding="utf-8") as file:
        file.write(text)


def remove_tree(path: Path) -> None:
    """Delete a tree an agent may have made hard to delete (no rights, thousands of levels). Follows no links. Raises OSError."""
    if path.is_symlink() or not path.is_dir():
        path.unlink()
        return
    try:
        shutil.rmtree(path)
    except (OSError, RecursionError):
        for command in (["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
            subprocess.run([*command, "--", str(path)], check=False, capture_output=True, timeout=_REMOVAL_DEADLINE_S)
        if path.exists():
            raise OSError(f"{path} could not be removed") from None
