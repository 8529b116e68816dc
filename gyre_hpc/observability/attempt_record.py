"""attempts/<n>/versions.json: what an attempt ran with and what it was told anew, and how attempts of a run differ in that."""

import itertools
from typing import Any

import msgspec

from gyre_hpc.config.run_folder import RunFolder


class ChangeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A key of the configuration that an attempt was told anew."""

    key: str
    before: Any
    after: Any
    forced: bool
    """Not marked changeable; launch.force named it."""


class AttemptRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The whole of versions.json. A version that does not apply or cannot be told is empty."""

    attempt: int
    time: float
    """Unix seconds."""
    host: str
    """Where it was written: of node 0."""
    versions: dict[str, str]
    """VERSIONS by name."""
    overrides: tuple[str, ...] = ()
    """As given on the command line; empty where a scheduler started the attempt."""
    changes: tuple[ChangeRecord, ...] = ()
    """Beside the attempt before."""


VERSIONS = {
    "format": "number of the run folder's format",
    "gyre": "version of gyre_hpc",
    "sources": "digest of its code and of conf/",
    "commit": "git commit of the code; with + behind it when files were changed since",
    "python": "",
    "torch": "",
    "sglang": "of the engine's own environment; empty for other engines",
    "driver": "NVIDIA's, of node 0",
}
"""Name -> what it is, where that needs saying."""


def read_records(folder: RunFolder) -> list[AttemptRecord]:
    """Of every attempt that has a readable one, oldest first."""
    records = []
    for path in folder.attempts.glob("*/versions.json"):
        try:
            records.append(msgspec.json.decode(path.read_bytes(), type=AttemptRecord))
        except (OSError, msgspec.MsgspecError):  # a monitor's file: damaged, it says nothing
            continue
    return sorted(records, key=lambda record: record.attempt)


def differences(records: list[AttemptRecord]) -> list[str]:
    """One text for each version that changed from a recorded attempt to the next: `torch 2.12.1 -> 2.13.0 (attempt 3)`."""
    found = []
    for before, after in itertools.pairwise(records):
        for name in VERSIONS:
            old, new = before.versions.get(name, ""), after.versions.get(name, "")
            if old != new:
                found.append(f"{name} {old or '-'} -> {new or '-'} (attempt {after.attempt})")
    return found


def told_anew(records: list[AttemptRecord]) -> list[str]:
    """One text for each key that an attempt was told anew: `seed 0 -> 4 (attempt 2, forced)`."""
    return [
        f"{change.key} {change.before} -> {change.after} (attempt {record.attempt}{', forced' if change.forced else ''})"
        for record in records
        for change in record.changes
    ]


def notes_on_attempts(folder: RunFolder) -> list[str]:
    """At most a line on versions that changed and a line on what was told anew, for people."""
    records = read_records(folder)
    lines = {"attempts ran with different versions": differences(records), "told anew": told_anew(records)}
    return [f"{what}: {'; '.join(found)}" for what, found in lines.items() if found]
