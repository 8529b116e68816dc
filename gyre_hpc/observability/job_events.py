"""events/job-<n>.jsonl: what the job of attempt n said of it. One that is refused before it begins an attempt speaks under the number that
it would have had."""

import msgspec

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.observability.events import Event

JOB = "job"
"""Who speaks."""
STARTED, TOLD, ENDED = "job_started", "job_told", "job_ended"


def of_job(folder: RunFolder, attempt: int) -> list[Event]:
    """What the job of that attempt said so far."""
    try:
        lines = folder.events(JOB, attempt).read_bytes().splitlines()
        return [msgspec.json.decode(line, type=Event) for line in lines if line]
    except (OSError, msgspec.MsgspecError):
        return []
