"""Fetches a harness into the cache, when a person asks for it, and tells what is there.

Invariants: a harness is in its folder as a whole or not at all (made aside, marked last, renamed); two installs of the same
one follow each other; an install that is interrupted or fails leaves nothing behind, one that is killed is swept by the next.
"""

import json
import os
import shutil
import sys
from pathlib import Path

from gyre_hpc.errors import UserError
from gyre_hpc.harnesses.base import Harness, Installation, Installer
from gyre_hpc.harnesses.place import MARKER, installed_folder
from gyre_hpc.launch.fetching import Say, alone, made_aside, remedy, run_to_end
from gyre_hpc.runner.workspaces import remove_tree


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
    with alone(folder, say) as lock:
        if is_installed(folder):
            say(f"{harness.name} {version} is installed in {folder}")
            return folder
        say(f"licence: {installation.licence}")
        say(f"fetching {' '.join(installation.packages)} with {installation.installer.name}, about {installation.megabytes} MB")
        with made_aside(folder) as aside:
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
    code, lines = run_to_end(argv, lock)
    if code:
        raise UserError("harness.name", name, remedy(Path(argv[0]).name, code, lines))
