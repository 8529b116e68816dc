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
from collections.abc import Callable, Iterator
from pathlib import Path

from gyre_hpc.errors import UserError
from gyre_hpc.harnesses.base import Harness, Installation, Installer
from gyre_hpc.harnesses.place import MARKER, installed_folder
from gyre_hpc.runner.workspaces import remove_tree

Say = Callable[[str], None]

_OFFLINE = re.compile(
    r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|network (?:is )?unreachable|name resolution|new connection|Read timed out",
    re.IGNORECASE,
)
_UNKNOWN = re.compile(r"E404|ETARGET|No matching (?:version|distribution)", re.IGNORECASE)


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
    with _alone(folder, say):
        if is_installed(folder):
            say(f"{harness.name} {version} is installed in {folder}")
            return folder
        say(f"licence: {installation.licence}")
        say(f"fetching {' '.join(installation.packages)} with {installation.installer.name}, about {installation.megabytes} MB")
        with _aside(folder) as aside:
            _fetch(harness.name, installation, aside)
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
def _alone(folder: Path, say: Say) -> Iterator[None]:
    """One install of a folder at a time; the kernel gives the lock back whatever happens to its holder."""
    with open(folder.parent / f".{folder.name}.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another install of it is going on; waiting for its end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


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


def _fetch(name: str, installation: Installation, aside: Path) -> None:
    if installation.installer is Installer.npm:
        _run(name, [_npm(name), *_NPM, "--prefix", str(aside), *installation.packages])
        return
    # With the interpreter below the environment we may run in: the new one must outlive it.
    python = Path(sys.base_prefix).resolve() / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    _run(name, [str(python), "-m", "venv", str(aside)])
    _run(name, [str(aside / "bin" / "python"), "-m", "pip", *_PIP, *installation.packages])


# Scripts of packages are not run: what is started comes ready in the package of the platform.
_NPM = ("install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error", "--ignore-scripts",
        "--fetch-retry-mintimeout=2000", "--fetch-retry-maxtimeout=10000")  # fmt: skip
_PIP = ("install", "--quiet", "--disable-pip-version-check", "--no-input")


def _npm(name: str) -> str:
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        missing = "npm" if npm is None else "node"
        raise UserError("harness.name", name, f"{missing} is needed to fetch it and is not here; install it, e.g. apt install nodejs npm")
    return npm


def _run(name: str, argv: list[str]) -> None:
    """Run to its end; it and all that it started end with us if we are interrupted."""
    with tempfile.TemporaryFile() as output:
        with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True) as process:
            try:
                code = process.wait()
            except BaseException:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise
        if code == 0:
            return
        output.seek(0)
        text = output.read().decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    reason = next((line for line in lines if _OFFLINE.search(line) or _UNKNOWN.search(line)), lines[-1] if lines else f"exit code {code}")
    program = Path(argv[0]).name
    if _OFFLINE.search(reason):
        raise UserError(
            "harness.name", name, f"cannot be fetched, the package registry is not reachable ({reason}); try on a machine with network"
        )
    if _UNKNOWN.search(reason):
        raise UserError("harness.name", name, f"the package registry does not have it ({reason}); ask the registry's owner for it")
    if "ensurepip" in text:
        raise UserError("harness.name", name, "this Python cannot make environments; install them, e.g. apt install python3-venv")
    raise UserError("harness.name", name, f"{program} failed ({reason}); try again, or look at its own messages: {' '.join(argv)}")
