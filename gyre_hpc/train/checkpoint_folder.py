"""Checkpoint folders: writing one so that it is whole or not there, and finding the newest whole one. No torch.

    checkpoints/<lineage>.<step>/   model.safetensors, config.json, optimizer.safetensors, state.json, ... and DONE, last

DONE is JSON: {"format": 1, "version": "0.3", "manifest_hash": "...", "files": {name: {"bytes": n, "blake2b": hex}}}.

Invariants:
  - DONE stands in a folder only after every file in it is durable under its final name;
  - `newest_whole` never returns a folder with a missing or damaged file;
  - pruning never removes one of the `keep` newest that have a marker.
"""

import contextlib
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gyre_hpc.errors import StorageFull
from gyre_hpc.protocol.identity import Version

MARKER = "DONE"
STATE = "state.json"
_FORMAT = 1
_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.ESTALE))
_BLOCK = 1 << 20


def write(folder: Path, version: Version, files: Mapping[str, Callable[[Path], None]], manifest_hash: str = "") -> None:
    """Write `files` (name -> function that writes the path it is given) as checkpoint `folder`, replacing what is there.

    Raises StorageFull; then nothing is left of the new one.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = folder.with_name(f".{folder.name}.partial")
    with _full_storage_named(folder, aside):
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        facts = {}
        for name, put in files.items():
            put(aside / name)
            _sync(aside / name)
            facts[name] = {"bytes": (aside / name).stat().st_size, "blake2b": _digest(aside / name)}
        _sync(aside)
        _replace(aside, folder)
        marker = {"format": _FORMAT, "version": str(version), "manifest_hash": manifest_hash, "files": facts}
        _put_marker(folder, marker)


def read_marker(folder: Path) -> dict[str, Any]:
    """Raises FileNotFoundError when the folder has none, ValueError when it cannot be read."""
    data = (folder / MARKER).read_bytes()
    try:
        marker: dict[str, Any] = json.loads(data)
        if marker["format"] != _FORMAT:
            raise ValueError(f"{folder / MARKER} has format {marker['format']!r}, this version reads {_FORMAT}")
        _ = marker["files"], Version.parse(marker["version"])
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{folder / MARKER} is damaged ({error})") from error
    return marker


def check(folder: Path) -> dict[str, Any]:
    """The marker, after every file was compared with it. Raises FileNotFoundError (no marker), ValueError (damaged)."""
    marker = read_marker(folder)
    for name, facts in marker["files"].items():
        path = folder / name
        if not path.is_file():
            raise ValueError(f"checkpoint {folder} is damaged: {name} is missing")
        if path.stat().st_size != facts["bytes"] or _digest(path) != facts["blake2b"]:
            raise ValueError(f"checkpoint {folder} is damaged: {name} is not what was written")
    return marker


def list_marked(checkpoints: Path) -> list[tuple[Version, Path]]:
    """Folders with a marker, oldest version first; their content is not checked."""
    return sorted((version, path) for version, path in _versions(checkpoints) if (path / MARKER).exists())


def _versions(checkpoints: Path) -> Iterator[tuple[Version, Path]]:
    for path in checkpoints.iterdir() if checkpoints.is_dir() else ():
        with contextlib.suppress(ValueError):
            if not path.name.startswith("."):
                yield Version.parse(path.name), path


def newest_whole(checkpoints: Path, passed_over: Callable[[Path, str], None] = lambda path, reason: None) -> Path | None:
    """The newest checkpoint whose files are all there and undamaged, or None. Walks back from the newest.

    `passed_over(folder, reason)` is told of every newer one that is not whole.
    """
    for _, path in sorted(_versions(checkpoints), reverse=True):
        try:
            check(path)
            return path
        except FileNotFoundError:
            passed_over(path, f"it has no {MARKER}: its writing was cut short")
        except (OSError, ValueError) as error:
            passed_over(path, str(error))
    return None


def read_state(folder: Path) -> dict[str, Any]:
    """state.json of a checkpoint. Raises ValueError when it is not a JSON object."""
    state = json.loads((folder / STATE).read_bytes())
    if not isinstance(state, dict):
        raise ValueError(f"{folder / STATE} is not a JSON object")  # noqa: TRY004  damaged content, not a wrong call
    return state


def prune(checkpoints: Path, keep: int) -> None:
    """Remove all but the `keep` newest marked checkpoints. keep = 0 keeps all."""
    if keep <= 0:
        return
    for _, path in list_marked(checkpoints)[:-keep]:
        # Marker first: a folder half removed must not look whole.
        (path / MARKER).unlink(missing_ok=True)
        shutil.rmtree(path, ignore_errors=True)


def _replace(aside: Path, folder: Path) -> None:
    if folder.exists():
        (folder / MARKER).unlink(missing_ok=True)
        shutil.rmtree(folder)
    os.rename(aside, folder)
    _sync(folder.parent)


def _put_marker(folder: Path, marker: dict[str, Any]) -> None:
    aside = folder / f".{MARKER}.partial"
    aside.write_text(json.dumps(marker, indent=1))
    _sync(aside)
    os.rename(aside, folder / MARKER)
    _sync(folder)


def _sync(path: Path) -> None:
    """fsync of a file or a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _digest(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


@contextlib.contextmanager
def _full_storage_named(folder: Path, aside: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        shutil.rmtree(aside, ignore_errors=True)
        # safetensors reports a full disk as an error of its own, with the number in its text.
        if getattr(error, "errno", None) in _FULL or any(f"os error {number}" in str(error) for number in _FULL):
            raise StorageFull(f"checkpoint {folder} could not be written: {error}") from error
        raise
