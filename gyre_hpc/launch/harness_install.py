"""Fetches a harness into the cache, when a person asks for it, and tells what is there.

Invariants: a harness is in its folder as a whole or not at all (made aside, marked last, renamed); two installs of the same
one follow each other; an install that is interrupted or fails leaves nothing behind, one that is killed is swept by the next.
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

from gyre_hpc.errors import UserError
from gyre_hpc.harnesses.base import Harness, Installation, Installer
from gyre_hpc.harnesses.place import MARKER, installed_folder
from gyre_hpc.runner.workspaces import remove_tree

Say = Callable[[str], None]

_REASONS = (
    (
        (
            r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|network (?:is )?unreachable|name ?resolution|failed to resolve"
            r"|new connection|read timed out"
        ),
        "cannot be fetched, the package registry is not reachable; try again on a machine with network",
    ),
    (r"ENOSPC|no space left", "there is no space for it; make room, or name another folder with --cache"),
    (r"E404|ETARGET|no matching (?:version|distribution)", "the package registry does not have it; ask the registry's owner for it"),
    (r"ensurepip", "this Python cannot make environments; install them, e.g. apt install python3-venv"),
)
"""What a line of npm's or pip's output means, the first that fits; and what to do about it."""


def is_installed(folder: Path | None) -> bool:
    """True for bundled ones (None) as well."""
    return folder is None or (folder / MARKER).is_file()


def install(harness: Harness, version: str, cache: Path, say: Say) -> Path | None:
    """Fetch it unless it is there; return its folder, None for a bundled one. Raises UserError, OSError."""
    folder, installation = installed_folder(cache, harness, version), harness.installation(version)
    if folder is None:
        say(f"{harness.name} comes with gyre_hpc; nothing to install")
        return None
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(folder, say) as lock:
        if is_installed(folder):
            say(f"{harness.name} {version} is installed in {folder}")
            return folder
        say(f"licence: {installation.licence}")
        say(f"fetching {' '.join(installation.packages)} with {installation.installer.name}, about {installation.megabytes} MB")
        with _aside(folder) as aside:
            _fetch(harness.name, installation, aside, lock)
            program = aside / installation.program
            if not os.access(program, os.R_OK) or not program.exists():
                raise UserError("harness.name", harness.name, f"the packages hold no {installation.program} for this machine")
            (aside / MARKER).write_text(json.dumps({"name": harness.name, "version": version, "packages": installation.packages}) + "\n")
            if folder.exists():
                remove_tree(folder)  # without its marker: not ours, or damaged by hand
            aside.rename(folder)
        say(f"installed {harness.name} {version} in {folder}")
    return folder


def disk_bytes(folder: Path) -> int:
    """What it takes on disk; files with several names count once."""
    seen: dict[tuple[int, int], int] = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        seen[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(seen.values())


@contextlib.contextmanager
def _alone(folder: Path, say: Say) -> Iterator[int]:
    """One install of a folder at a time. The lock ends with its last holder: us, or a fetching program that outlives us."""
    with open(folder.parent / f".{folder.name}.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another install of it is going on; waiting for its end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()


@contextlib.contextmanager
def _aside(folder: Path) -> Iterator[Path]:
    """A folder beside it, gone at the end unless it was renamed. The lock makes every other one of this name a leftover."""
    prefix = f".{folder.name}.installing-"
    for leftover in folder.parent.glob(f"{prefix}*"):
        remove_tree(leftover)
    aside = Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent))
    aside.chmod(0o755)
    try:
        yield aside
    finally:
        if aside.exists():
            remove_tree(aside)


def _fetch(name: str, installation: Installation, aside: Path, lock: int) -> None:
    if installation.installer is Installer.npm:
        _run(name, [_npm(name), *_NPM, "--prefix", str(aside), *installation.packages], lock)
        return
    # With the interpreter below the environment we may run in: the new one must outlive it.
    python = Path(sys.base_prefix).resolve() / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    _run(name, [str(python), "-m", "venv", str(aside)], lock)
    _run(name, [str(aside / "bin" / "python"), "-m", "pip", *_PIP, *installation.packages], lock)


# Scripts of packages are not run: what is started comes ready in the package of the platform.
_NPM = ("install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error", "--ignore-scripts",
        "--fetch-retry-mintimeout=2000", "--fetch-retry-maxtimeout=10000")  # fmt: skip
_PIP = ("install", "--progress-bar=off", "--disable-pip-version-check", "--no-input")


def _npm(name: str) -> str:
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        missing = "npm" if npm is None else "node"
        raise UserError("harness.name", name, f"{missing} is needed to fetch it and is not here; install it, e.g. apt install nodejs npm")
    return npm


def _run(name: str, argv: list[str], lock: int) -> None:
    """Run to its end; it and all that it started end with us if we are interrupted."""
    with tempfile.TemporaryFile() as output:
        with _Interrupts() as interrupts:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, pass_fds=(lock,)
            )
            interrupts.end_with(process.pid)
            code = process.wait()
        if interrupts.heard:
            raise KeyboardInterrupt
        if code == 0:
            return
        output.seek(0)
        lines = output.read().decode(errors="replace").splitlines()
    raise UserError("harness.name", name, _remedy(Path(argv[0]).name, code, lines))


class _Interrupts:
    """While it is entered, Ctrl-C ends a process group instead of raising: an exception may come where nobody knows of the process yet,
    or where Python drops it (finalizers)."""

    def __init__(self) -> None:
        self.heard = False
        self._group = 0
        self._before: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            self._before = signal.signal(signal.SIGINT, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def end_with(self, group: int) -> None:
        self._group = group
        if self.heard:
            self._end()

    def _hear(self, *_: object) -> None:
        self.heard = True
        if self._group:
            self._end()

    def _end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._group, signal.SIGKILL)


def _remedy(program: str, code: int, lines: list[str]) -> str:
    """Why it failed, in its own words where they are known, and what to do."""
    for pattern, remedy in _REASONS:
        for line in lines:
            if re.search(pattern, line, re.IGNORECASE):
                return f"{remedy} ({program}: {line.strip()[:300]})"
    said = [line.strip() for line in lines if "error" in line.lower()] or [line.strip() for line in lines if line.strip()]
    return f"{program} failed with exit code {code}{': ' + said[0][:300] if said else ''}; try again"
