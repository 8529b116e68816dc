"""What a process runs with (code, Python, torch, SGLang, driver), and the record of it that each attempt leaves.

Nothing here imports torch or SGLang: versions are those that their installations declare.
"""

import hashlib
import platform
import re
import socket
import subprocess
from collections.abc import Iterator, Sequence
from importlib import metadata, resources
from importlib.resources.abc import Traversable
from pathlib import Path

import msgspec

import gyre_hpc
from gyre_hpc.clock import unix_s
from gyre_hpc.config.changes import changes
from gyre_hpc.config.place import cache_folder
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config, EngineKind
from gyre_hpc.config.stored import FORMAT, load_config
from gyre_hpc.engines.sglang import environment
from gyre_hpc.errors import UserError
from gyre_hpc.observability.attempt_record import AttemptRecord, ChangeRecord
from gyre_hpc.observability.events import EventWriter
from gyre_hpc.supervisor.attempts import highest_attempt
from gyre_hpc.whole_file import write_whole

NAME = "launch"
COMMIT = "COMMIT"
"""Beside a copy of the package: what `commit_here` was where it was made."""
_ASK_DEADLINE_S = 5.0
_DRIVER = Path("/proc/driver/nvidia/version")


def record_attempt(folder: RunFolder, attempt: int, overrides: Sequence[str] = ()) -> AttemptRecord:
    """Write attempts/<n>/config.yaml and versions.json, and note what changed since the attempt before. Once per attempt, after its
    config.yaml is the run's and before its processes start; another call changes nothing. Raises OSError."""
    if folder.versions(attempt).exists():
        return msgspec.json.decode(folder.versions(attempt).read_bytes(), type=AttemptRecord)
    config = load_config(folder.config)
    write_whole(folder.config_of(attempt), folder.config.read_bytes())
    before = _told_before(folder, attempt)
    told = () if before is None else changes(before, config)
    record = AttemptRecord(
        attempt=attempt,
        time=unix_s(),
        host=socket.gethostname(),
        versions=versions_here(config),
        overrides=tuple(overrides),
        changes=tuple(ChangeRecord(key=one.key, before=one.before, after=one.after, forced=one.forced) for one in told),
    )
    write_whole(folder.versions(attempt), msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")
    if record.changes:
        events = EventWriter(folder.events(NAME, attempt), NAME, attempt)
        for change in record.changes:
            events.note("told_anew", msgspec.structs.asdict(change))
        events.close()
    return record


def keep_told(folder: RunFolder) -> None:
    """Before config.yaml is replaced: an attempt that kept no copy of it (a run of format 1) gets one. Raises OSError."""
    newest = highest_attempt(folder.attempts)
    if newest and not folder.config_of(newest).exists():
        write_whole(folder.config_of(newest), folder.config.read_bytes())


def versions_here(config: Config) -> dict[str, str]:
    """The names of observability.attempt_record.VERSIONS -> version; empty where there is none or it cannot be told."""
    return {
        "format": str(FORMAT),
        "gyre": gyre_hpc.__version__,
        "sources": sources_digest(),
        "commit": commit_here(),
        "python": platform.python_version(),
        "torch": installed_version("torch"),
        "sglang": _sglang(config),
        "driver": driver_version(),
    }


def installed_version(package: str) -> str:
    """As its installation declares it; empty when it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def sources_digest() -> str:
    """First 16 hex digits of a SHA-256 over the code and configuration of this gyre_hpc."""
    digest = hashlib.sha256()
    for package in ("gyre_hpc", "gyre_hpc.conf"):
        for name, file in _sources(resources.files(package), package):
            content = file.read_bytes()
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def driver_version(path: Path = _DRIVER) -> str:
    """Of NVIDIA's driver, e.g. 570.86.15; empty without one."""
    try:
        found = re.search(r"\b(\d+\.\d+(?:\.\d+)?)\b", path.read_text(errors="replace"))
    except OSError:
        return ""
    return found[1] if found else ""


def _told_before(folder: RunFolder, attempt: int) -> Config | None:
    for earlier in range(attempt - 1, 0, -1):
        try:
            return load_config(folder.config_of(earlier))
        except FileNotFoundError:  # it came to nothing
            continue
        except UserError:  # a copy that cannot be read: nothing can be told
            return None
    return None


def _sources(folder: Traversable, above: str) -> Iterator[tuple[str, Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        name = f"{above}/{entry.name}"
        if entry.is_dir():
            yield from _sources(entry, name)
        elif entry.name.endswith((".py", ".yaml", ".txt")):
            yield name, entry


def commit_here() -> str:
    """Of the repository that holds the code, or that the copy was made from; empty where there is none, or no git."""
    root = Path(gyre_hpc.__file__).parents[1]
    if (root / COMMIT).exists():
        return (root / COMMIT).read_text()
    if not (root / ".git").exists():  # git would look further up, and find somebody else's
        return ""
    ask = ["git", "--no-optional-locks", "-C", str(root), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+"]
    try:
        done = subprocess.run(ask, capture_output=True, text=True, check=False, timeout=_ASK_DEADLINE_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _sglang(config: Config) -> str:
    if config.engine.kind is not EngineKind.sglang:
        return ""
    given = config.engine.sglang
    try:
        python = environment.find(given, cache_folder(config), given.device)
    except UserError:
        return ""
    found = sorted(python.parents[1].glob("lib/python*/site-packages/sglang-*.dist-info"))
    return found[-1].name.removeprefix("sglang-").removesuffix(".dist-info") if found else ""
