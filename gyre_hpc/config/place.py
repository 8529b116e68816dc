"""Where a run's three folders are (DESIGN §10): durable run folder, node-local scratch, shared cache."""

import os
import tempfile
import time
from pathlib import Path

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.errors import UserError


def claim_run_folder(config: Config, unix_s: float) -> RunFolder:
    """The run folder of a start made at `unix_s`; a new one is created, and belongs to this start alone. Raises UserError."""
    if config.resume:
        return RunFolder(Path(config.resume).expanduser().resolve())
    if config.paths.run:
        folder = RunFolder(Path(config.paths.run).expanduser().resolve())
        if folder.config.exists():
            raise UserError(
                "paths.run", config.paths.run, f"holds a run already: go on with it by resume={config.paths.run}, or name another folder"
            )
        folder.root.mkdir(parents=True, exist_ok=True)
        return folder
    stem = f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(unix_s))}-{config.seed}"
    above = Path.cwd() / "outputs" / config.experiment
    above.mkdir(parents=True, exist_ok=True)
    for ordinal in range(1000):
        root = above / (f"{stem}-{ordinal}" if ordinal else stem)
        try:
            root.mkdir()
        except FileExistsError:
            continue  # another start in the same second
        return RunFolder(root)
    raise UserError("paths.run", "", f"{above} holds 1000 runs of this second; name a folder of your own")


def cache_folder(config: Config) -> Path:
    """Shared by runs; created."""
    if config.paths.cache:
        folder = Path(config.paths.cache).expanduser().resolve()
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gyre_hpc"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def scratch_folder(config: Config, run: RunFolder) -> Path:
    """Node-local folder of one run, mode 0700, its path short enough for sockets below it; created. The same for every process of a run."""
    above = Path(config.paths.scratch).expanduser().resolve() if config.paths.scratch else Path(tempfile.gettempdir())
    name = f"gyre-{os.getuid()}-{run.root.stat().st_ino:x}"
    folder = above / name
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if folder.stat().st_uid != os.getuid():
        raise UserError("paths.scratch", str(above), f"{folder} belongs to somebody else; name a folder of your own")
    return folder
