"""jobs/<job>.json of a run folder: which SLURM jobs were submitted for the run. Written once by who submitted the job."""

from pathlib import Path

import msgspec

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.whole_file import write_whole

RUN, SATELLITE = "run", "satellite"
"""Kinds of jobs."""


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One job."""

    job: str
    kind: str = RUN
    submitted: float = 0.0
    """Unix seconds."""
    partition: str = ""
    nodes: int = 0
    time_min: int = 0
    name: str = ""
    asker: str = ""
    """Job that asked for this one; empty: a person did."""


def record_job(folder: RunFolder, record: JobRecord) -> None:
    """Raises OSError."""
    write_whole(folder.jobs / f"{record.job}.json", msgspec.json.encode(record))


def jobs_of(folder: RunFolder, *kinds: str) -> tuple[JobRecord, ...]:
    """Of these kinds (none named: of all), oldest first. What is no such file is left out: other programs write there too."""
    found = (_read(path) for path in folder.jobs.glob("*.json"))
    wanted = [record for record in found if record is not None and (not kinds or record.kind in kinds)]
    return tuple(sorted(wanted, key=lambda record: record.submitted))


def _read(path: Path) -> JobRecord | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=JobRecord)
    except (OSError, msgspec.MsgspecError):
        return None
