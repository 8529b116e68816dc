"""Name of a warm start in the cache: a hash of all that its weights depend on."""

import dataclasses
import enum
import hashlib
import json
from pathlib import Path
from typing import Any

from gyre_hpc.config.schema import Config

_FORMAT = 1
"""Raise when warm starts of the same configuration come out differently."""


def warm_folder(config: Config, cache: Path, sources: dict[str, str]) -> Path:
    """cache/warm_starts/<hash>/0.0. `sources`: name -> digest of what is not in the configuration (task rules, template)."""
    parts = {
        "format": _FORMAT,
        "seed": config.seed,
        "model": dataclasses.asdict(config.model),
        "suite": {"name": config.suite.name, "path": config.suite.path},
        "harness": dataclasses.asdict(config.harness),
        "warm_start": dataclasses.asdict(config.warm_start),
        "j_max": config.algo.j_max,
        "sources": sources,
    }
    digest = hashlib.blake2b(json.dumps(parts, sort_keys=True, default=_plain).encode(), digest_size=16).hexdigest()
    return cache / "warm_starts" / digest / "0.0"


def _plain(value: Any) -> str:
    return value.name if isinstance(value, enum.Enum) else str(value)


def source_digest(*folders: Path) -> str:
    """Digest of every Python file below the folders: what the tasks and the template are is in their code."""
    digest = hashlib.blake2b(digest_size=16)
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
