"""How the nodes get the Python of a run (launch.environment): the one that submits, a packed copy of its packages, or a container's.

An archive is a virtual environment that works wherever it is unpacked: the packages of the submitting one, a link to its interpreter and
a pyvenv.cfg. It is made once per content, whole or not at all. Limits: the interpreter itself must be at the same path on every node, and
packages outside of site-packages (PYTHONPATH, `pip install -e` of other projects) do not travel; the run's own code comes by
launch.snapshot.

Invariant: within a job that came by an archive, `archive_of` names that archive, so that a successor gets the same one.
"""

import hashlib
import os
import shlex
import sys
import sysconfig
import tarfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from gyre_hpc.config.place import cache_folder
from gyre_hpc.config.schema import Config, EnvironmentKind
from gyre_hpc.errors import UserError
from gyre_hpc.launch.fetching import Say, alone
from gyre_hpc.whole_file import write_whole

CONTAINER_PYTHON = "python3"
"""In the image, which has its own packages."""
_CAME_FROM = "gyre-archive"
"""File in an unpacked environment: path of the archive."""
_OURS = ("__editable__", "gyre_hpc")
"""Beginnings of what an installation of this project leaves in site-packages: paths of another machine, or older code."""

ENTER = r"""#!/bin/bash
# enter.sh ARCHIVE SCRATCH ARGUMENT...: unpacks the environment unless this node has it, then is its Python.
set -eu
archive=$1 above=${2:-${TMPDIR:-/tmp}}; shift 2
mine="gyre-env-$(id -u)"
env="$above/$mine-$(basename "$archive" .tar)"
is_there() { [ -O "$env" ] && [ -f "$env/DONE" ]; }
unpack() {
  find "$above" -maxdepth 1 -name "$mine-*" -user "$(id -u)" -mtime +30 -exec rm -rf {} + || true
  rm -rf "$env.new"
  mkdir -m 700 "$env.new"
  tar -xf "$archive" -C "$env.new" || { echo "$archive cannot be unpacked to $above on $(hostname)" >&2; rm -rf "$env.new"; exit 2; }
  : >"$env.new/DONE"
  mv -T "$env.new" "$env" || { echo "$env is in the way on $(hostname); remove it or name another paths.scratch" >&2; exit 2; }
}
if ! is_there; then
  mkdir -p "$above"
  # Several jobs on a node, or several nodes on one disk: one unpacks. The lock must not stay open in what follows.
  (flock 9; is_there || unpack) 9>"$env.lock"
fi
touch "$env"
exec "$env/bin/python" "$@"
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Archive:
    """A packed environment in the cache, made or to be made."""

    file: Path
    """<cache>/environments/<hash of its content>.tar"""
    scratch: str
    """Where a node unpacks it; empty: its $TMPDIR, or /tmp."""

    @property
    def enter(self) -> Path:
        """The script that unpacks it and becomes its Python."""
        return self.file.with_suffix(".sh")

    @property
    def python(self) -> str:
        """Shell command of the interpreter on a node."""
        return shlex.join(["/bin/bash", str(self.enter), str(self.file), self.scratch])


def archive_of(config: Config) -> Archive | None:
    """None: another kind of environment is configured. Looks at what is installed; makes nothing but the cache's folder. Raises UserError."""
    if config.launch.environment is not EnvironmentKind.archive:
        return None
    scratch = str(Path(config.paths.scratch).expanduser().resolve()) if config.paths.scratch else ""
    try:
        file = Path((Path(sys.prefix) / _CAME_FROM).read_text(encoding="utf-8"))
    except FileNotFoundError:
        file = cache_folder(config) / "environments" / f"{_hash(_packages())}.tar"
    return Archive(file=file, scratch=scratch)


def make(archive: Archive, say: Say) -> None:
    """Pack what is installed here, unless that was done before. Raises UserError, OSError."""
    if archive.file.exists() and archive.enter.exists():
        return
    if (Path(sys.prefix) / _CAME_FROM).exists():
        raise UserError(
            "launch.environment", "archive", f"{archive.file}, which this job came from, is gone; submit again from a login node"
        )
    archive.file.parent.mkdir(parents=True, exist_ok=True)
    with alone(archive.file, say):
        if not archive.file.exists():
            say(f"packing the environment to {archive.file}; once, until what is installed changes")
            _pack(archive.file)
        write_whole(archive.enter, ENTER.encode(), mode=0o755)


def _packages() -> Path:
    return Path(sysconfig.get_path("purelib"))


def _interpreter() -> Path:
    """The one that a virtual environment is made of; our own outside of one."""
    return Path(getattr(sys, "_base_executable", sys.executable)).resolve()


def _hash(packages: Path) -> str:
    """Of what pip recorded of each package (with a checksum of each file), what else lies there by name, and the interpreter."""
    content = hashlib.sha256(f"{_interpreter()} {sys.version}\n".encode())
    for entry in sorted(os.listdir(packages)):
        if entry.startswith(_OURS):
            continue
        content.update(f"{entry}\n".encode())
        if entry.endswith(".dist-info"):
            try:
                content.update((packages / entry / "RECORD").read_bytes())
            except FileNotFoundError:  # not by pip
                content.update(str((packages / entry).stat().st_mtime_ns).encode())
    return content.hexdigest()[:16]


def _pack(file: Path) -> None:
    aside = file.with_suffix(".tmp")
    interpreter, packages = _interpreter(), _packages()
    config = f"home = {interpreter.parent}\ninclude-system-site-packages = false\nversion = {sys.version.split()[0]}\n"
    try:
        with tarfile.open(aside, "w", format=tarfile.PAX_FORMAT) as tar:
            _add_text(tar, "pyvenv.cfg", config)
            _add_text(tar, _CAME_FROM, str(file))
            link = tarfile.TarInfo("bin/python")
            link.type, link.linkname = tarfile.SYMTYPE, str(interpreter)
            tar.addfile(link)
            inside = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
            for entry in sorted(os.listdir(packages)):
                if not entry.startswith(_OURS):
                    tar.add(packages / entry, f"{inside}/{entry}")
        os.replace(aside, file)
    finally:
        aside.unlink(missing_ok=True)


def _add_text(tar: tarfile.TarFile, name: str, text: str) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(text.encode())
    tar.addfile(info, BytesIO(text.encode()))
