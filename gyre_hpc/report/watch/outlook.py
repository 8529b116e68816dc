"""How far a run will get in its allocation, and how many more of them it needs. Pure."""

import math
from dataclasses import dataclass

from gyre_hpc.observability.status import Status


@dataclass(frozen=True, kw_only=True, slots=True)
class Outlook:
    """None: it cannot be told yet."""

    left_s: float
    """To the time limit of the allocation."""
    update_s: float | None
    """Measured seconds per update."""
    updates_by_then: int | None
    """Optimizer steps made when the time is up."""
    further_jobs: int | None
    """Allocations of this length that are needed after it; -1: an update takes longer than one."""


def look_ahead(status: Status, left_s: float, *, job_s: float, lead_s: float) -> Outlook:
    """left_s: to the time limit. job_s: a whole allocation. lead_s: of it, for starting, and for saving before the limit."""
    update_s = status.update_s
    if update_s is None or update_s <= 0:
        return Outlook(left_s=left_s, update_s=None, updates_by_then=None, further_jobs=None)
    remaining = status.updates_total - status.update
    # What has been done of the present one already.
    since_s = max(0.0, remaining * update_s - status.eta_s) if status.eta_s is not None else 0.0
    made = min(remaining, max(0, math.floor((left_s + min(since_s, update_s)) / update_s)))
    per_job = math.floor(max(0.0, job_s - lead_s) / update_s)
    rest = remaining - made
    jobs = 0 if not rest else math.ceil(rest / per_job) if per_job else -1
    return Outlook(left_s=left_s, update_s=update_s, updates_by_then=status.update + made, further_jobs=jobs)
