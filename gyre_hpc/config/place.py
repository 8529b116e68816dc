"""Where a run's three folders are (DESIGN §10): durable run folder, node-local scratch, shared cache."""

import contextlib
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config, PathsConfig
from gyre_hpc.errors import UserError

LONGEST_SCRATCH = 60
"""Bytes. A socket path holds at most 103; below scratch come a folder per run and a name."""


def claim_run_folder(config: Config, unix_s: float) -> RunFolder:
    """The run folder of a start made at `unix_s`; a new one is created, and belongs to this start alone. Raises UserError."""
    if config.resume:
        return RunFolder(Path(config.resume).expanduser().resolve())
    if config.paths.run:
        with _made("paths.run", config.paths.run):
            return _claim_named(config.paths.run)
    stem = f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(unix_s))}-{config.seed}"
    above = outputs_above(config)
    with _made("paths.run", str(above)):
        above.mkdir(parents=True, exist_ok=True)
        for ordinal in range(1000):
            root = above / (f"{stem}-{ordinal}" if ordinal else stem)
            try:
                root.mkdir()
            except FileExistsError:
                continue  # another start in the same second
            return RunFolder(root)
    raise UserError("paths.run", "", f"{above} holds 1000 runs of this second; name a folder of your own")


def outputs_above(config: Config) -> Path:
    """The folder in which the run folder of a new run is made; it may not be there yet."""
    if config.paths.run:
        return Path(config.paths.run).expanduser().resolve().parent
    return Path.cwd() / "outputs" / config.experiment


def _claim_named(name: str) -> RunFolder:
    folder = RunFolder(Path(name).expanduser().resolve())
    if folder.config.exists():
        raise UserError("paths.run", name, f"holds a run already: go on with it by resume={name}, or name another folder")
    folder.root.mkdir(parents=True, exist_ok=True)
    for ours in (folder.events_folder, folder.journal, folder.checkpoints, folder.token.parent, folder.tensorboard):
        if ours.exists():
            raise UserError("paths.run", name, f"holds {ours.name} but no config.yaml; name a new or an empty folder")
    try:
        folder.attempts.mkdir()  # of two starts at once, one makes it
    except FileExistsError as error:
        raise UserError("paths.run", name, "another start has just taken it; name another folder") from error
    return folder


def cache_folder(config: Config) -> Path:
    """Shared by runs; created. Raises UserError."""
    with _made("paths.cache", config.paths.cache):
        if config.paths.cache:
            folder = Path(config.paths.cache).expanduser().resolve()
        else:
            folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gyre_hpc"
        folder.mkdir(parents=True, exist_ok=True)
        _must_be_writable(folder)
    return folder


def cache_of_command(given: str) -> Path:
    """What a command's --cache says; empty: that of paths.cache. Raises UserError with the name that the person used."""
    try:
        return cache_folder(Config(paths=PathsConfig(cache=given)))
    except UserError as error:
        if given:
            raise UserError("--cache", given, error.remedy) from error
        raise


def scratch_folder(config: Config, run: RunFolder, node: str = "") -> Path:
    """Node-local folder of one run, mode 0700, its path short enough for sockets below it; created. The same for every process of a run
    on one node. `node`: as in Birth.node; paths.scratch may be seen by several nodes.

    Raises UserError.
    """
    with _made("paths.scratch", config.paths.scratch):
        name = f"gyre-{os.getuid()}-{run.root.stat().st_ino:x}" + (f"-{node}" if node else "")
        folder = above_scratch(config) / name
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        if why := _is_not_private(os.lstat(folder)):
            raise UserError("paths.scratch", str(folder.parent), f"{folder} {why}; remove it, or name a folder of your own")
    return folder


def _is_not_private(found: os.stat_result) -> str:
    """Of what others may have put into a folder that all write to; empty: it is a folder of ours alone."""
    if not stat.S_ISDIR(found.st_mode):
        return "is a link or a file"
    if found.st_uid != os.getuid():
        return "belongs to somebody else"
    return "is open to others" if stat.S_IMODE(found.st_mode) & 0o077 else ""


def above_scratch(config: Config) -> Path:
    """Where scratch folders are made; created. Raises UserError."""
    with _made("paths.scratch", config.paths.scratch):
        above = Path(config.paths.scratch).expanduser().resolve() if config.paths.scratch else Path(tempfile.gettempdir())
        above.mkdir(parents=True, exist_ok=True)
        _must_be_writable(above)
    return above


@contextlib.contextmanager
def _made(field: str, value: str) -> Iterator[None]:
    """A folder that cannot be made or used is bad input."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # RuntimeError: no home for ~
        raise UserError(field, value, f"cannot be used ({error}); name a folder that you can write to") from error


def _must_be_writable(folder: Path) -> None:
    """Raises OSError."""
    with tempfile.TemporaryFile(dir=folder):
        return
