"""Everything that `gyre status` knows of a run: signs of life, status.json, jobs, the way ahead."""

import dataclasses
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gyre_hpc.clock import unix_s
from gyre_hpc.config.place import cache_folder
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.config.stored import open_folder
from gyre_hpc.errors import UserError
from gyre_hpc.observability.job_record import JobRecord, jobs_of
from gyre_hpc.observability.status import Status, read_status
from gyre_hpc.report.lines import span
from gyre_hpc.report.watch.jobs import Jobs
from gyre_hpc.report.watch.outlook import Outlook, look_ahead
from gyre_hpc.report.watch.signs import SILENT_S, Signs, answers_http, read_signs
from gyre_hpc.report.watch.squeue import QueueJob, read_queue
from gyre_hpc.report.watch.state import RunState, Verdict, judge


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A run folder and what it was told."""

    folder: RunFolder
    config: Config

    @property
    def token(self) -> str:
        """Empty where it cannot be read."""
        try:
            return self.folder.token.read_text().strip()
        except OSError:
            return ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Watched:
    """A run at one instant."""

    run: Run
    now: float
    signs: Signs
    status: Status | None
    jobs: Jobs
    verdict: Verdict
    outlook: Outlook | None
    """None: no allocation with a time limit, or it does not run."""


def open_run(path: str | Path) -> Run:
    """Raises NoRun when `path` is no run folder, UserError for a damaged one."""
    folder, config = open_folder(path)
    return Run(folder=folder, config=config)


def watch(run: Run, *, patient: bool = True) -> Watched:
    """Look once. `patient`: as in read_signs. Raises UserError for a damaged status.json."""
    signs = read_signs(run.folder, patient=patient)
    status = _status(run.folder)
    submitted = jobs_of(run.folder)
    if signs.start is not None and signs.start.job and not any(job.job == signs.start.job for job in submitted):
        submitted = (*submitted, JobRecord(job=signs.start.job))  # started by hand
    # Most runs have no job: then nobody is asked.
    jobs = Jobs(submitted=submitted, queue=read_queue(cache_folder(run.config)) if submitted else None)
    now = unix_s()
    verdict = judge(signs, jobs, status_attempt=status.attempt if status is not None else 0, now=now)
    if verdict.state is RunState.silent and patient and signs.start is not None and answers_http(signs.start, run.token):
        # A full disk, or a file system that shows things late.
        verdict = Verdict(state=RunState.running, text=f"{verdict.text}; but its supervisor answers at {signs.start.url}")
    return Watched(
        run=run, now=now, signs=signs, status=status, jobs=jobs, verdict=verdict, outlook=_outlook(run, status, jobs, verdict, now)
    )


def job_lines(watched: Watched) -> list[str]:
    """What the queue says, how far the allocation will take the run, and whether its status is of now."""
    jobs, lines = watched.jobs, list[str]()
    behind_s = watched.signs.status_behind_s
    if watched.verdict.state is RunState.running and behind_s >= SILENT_S:
        lines.append(
            f"its status was written {span(behind_s)} before that: its controller stands still or starts again, or the run folder takes no"
            " file (full, read-only)"
        )
    end, asked = watched.signs.end, jobs.queue.asked if jobs.queue is not None else 0.0
    is_fresh = end is None or asked > end.time  # else the queue shows what was before the end
    if is_fresh:
        lines += [_job(job, watched.now) for job in (jobs.pending(), jobs.living()) if job is not None]
    if watched.outlook is not None:
        lines.append(_ahead(watched.outlook, watched.status))
    if jobs.num_satellites and is_fresh:
        lines.append(f"satellites: {jobs.num_satellites} {'job runs' if jobs.num_satellites == 1 else 'jobs run'}")
    if jobs.queue is not None and jobs.queue.trouble:
        heard = f"; the queue as of {span(watched.now - jobs.queue.asked)} ago" if jobs.queue.asked else ""
        lines.append(f"queue: {jobs.queue.trouble}{heard}")
    return lines


def as_json(watched: Watched) -> dict[str, Any]:
    """status.json, and under `watch` what was found beside it."""
    signs, job = watched.signs, watched.jobs.pending() or watched.jobs.living()
    found = {
        "state": watched.verdict.state.value,
        "text": watched.verdict.text,
        "attempt": signs.attempt,
        "silent_s": signs.silent_s,
        "status_behind_s": signs.status_behind_s,
        "exit_code": watched.verdict.exit_code if signs.end is None else signs.end.exit_code,
        "job": None if job is None else msgspec.to_builtins(job),
        "outlook": None if watched.outlook is None else dataclasses.asdict(watched.outlook),
    }
    return {**(msgspec.to_builtins(watched.status) if watched.status is not None else {}), "watch": found}


def _status(folder: RunFolder) -> Status | None:
    try:
        return read_status(folder.status)
    except msgspec.DecodeError as error:
        remedy = f"its status.json is damaged or of another version ({error}); go on with the run, or remove that file"
        raise UserError("RUN", str(folder.root), remedy) from error


def _outlook(run: Run, status: Status | None, jobs: Jobs, verdict: Verdict, now: float) -> Outlook | None:
    job, queue = jobs.living(), jobs.queue
    if verdict.state is not RunState.running or status is None or job is None or queue is None or job.left_s is None:
        return None
    slurm = run.config.cluster.slurm
    left_s = max(0.0, job.left_s - max(0.0, now - queue.asked))
    return look_ahead(status, left_s, job_s=60.0 * slurm.time_min, lead_s=float(slurm.signal_s))


def _job(job: QueueJob, now: float) -> str:
    words = [f"job {job.id} {job.state.lower()}"]
    if job.nodes:
        words.append(f"on {job.nodes}")
    if job.reason and job.reason != "None":
        words.append(f"({job.reason})")
    if job.state == "PENDING":
        if job.start is None:
            words.append("start: no estimate yet")
        else:
            words.append(f"start: about {time.strftime('%d %b %H:%M', time.localtime(job.start))} (in {span(job.start - now)})")
    return " ".join(words)


def _ahead(outlook: Outlook, status: Status | None) -> str:
    text = f"time left in the allocation: {span(outlook.left_s)}"
    if outlook.update_s is None or status is None:
        return f"{text}; how far that takes it is known after two updates"
    text += f"; by then update {outlook.updates_by_then} of {status.updates_total} at {span(outlook.update_s)} each"
    match outlook.further_jobs:
        case 0:
            return f"{text}; no further job is needed"
        case -1:
            return f"{text}; an update takes longer than an allocation"
    return f"{text}; further jobs needed: {outlook.further_jobs}"
