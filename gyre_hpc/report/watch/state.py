"""Whether a run lives, judged by what its folder and the queue show. Pure.

never_started -> waiting -> starting -> running -> over
                    ^                      |  \\-> silent -> running | dead
                    \\------ requeued <-----+
"""

import enum
import time
from dataclasses import dataclass

from gyre_hpc.report.watch.jobs import Jobs
from gyre_hpc.report.watch.signs import SILENT_S, Signs


class RunState(enum.Enum):
    never_started = "never_started"
    waiting = "waiting"
    """Its first job is in the queue."""
    starting = "starting"
    """An allocation is there, or an attempt, and the controller has not spoken yet."""
    running = "running"
    silent = "silent"
    """No sign of life, and nothing says that it is over."""
    requeued = "requeued"
    """An attempt is over and the next one waits in the queue."""
    dead = "dead"
    """It ended without a word, and no job of it is left."""
    over = "over"


FINAL = frozenset({RunState.over, RunState.dead, RunState.never_started})
"""Nothing follows by itself."""


_PUT_BACK = "requeue"
"""signs.End.next of an attempt whose job does that itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    state: RunState
    text: str
    """For people, a line."""
    exit_code: int | None = None
    """Of the run, once it is over."""


def judge(signs: Signs, jobs: Jobs, *, status_attempt: int, now: float) -> Verdict:
    """status_attempt: the one that wrote status.json; 0: none. now: unix seconds, for words alone."""
    if not signs.attempt:
        return _before(signs, jobs)
    if signs.end is not None:
        return _after(signs, jobs)
    if signs.silent_s >= SILENT_S:
        return _silent(signs, jobs, now)
    where = f" on {signs.start.host}" if signs.start is not None and signs.start.host else ""
    job = f", job {signs.start.job}" if signs.start is not None and signs.start.job else ""
    if status_attempt < signs.attempt:
        return Verdict(state=RunState.starting, text=f"attempt {signs.attempt} starts{where}{job}; its controller has not written yet")
    return Verdict(state=RunState.running, text=f"attempt {signs.attempt} runs{where}{job}; last sign of life {signs.silent_s:.0f} s ago")


def _before(signs: Signs, jobs: Jobs) -> Verdict:
    pending, living = jobs.pending(), jobs.living()
    if pending is not None:
        return Verdict(state=RunState.waiting, text=f"job {pending.id} waits in the queue ({pending.reason})")
    if living is not None:
        return Verdict(state=RunState.starting, text=f"job {living.id} is {living.state.lower()} on {living.nodes}; nothing has spoken yet")
    newest = jobs.newest
    if (refused := _refused(signs, jobs)) is not None:
        return refused
    if newest is None:
        return Verdict(state=RunState.never_started, text="it was never started")
    if not jobs.can_tell:
        told = "the queue was not heard since" if jobs.queue is not None else "there is no queue to ask here"
        return Verdict(state=RunState.waiting, text=f"job {newest.job} was submitted; {told}")
    return Verdict(
        state=RunState.never_started, text=f"job {newest.job} is gone from the queue before it started anything; see jobs/ and logs/"
    )


def _after(signs: Signs, jobs: Jobs) -> Verdict:
    end = signs.end
    assert end is not None
    over = f"attempt {signs.attempt} is over: {end.reason} (exit code {end.exit_code})"
    pending, living = jobs.pending(), jobs.living()
    if end.exit_code != 0 and pending is not None:
        return Verdict(state=RunState.requeued, text=f"{over}; job {pending.id} waits for the next one ({pending.reason})")
    own = signs.start.job if signs.start is not None else ""
    # The same job again, or one that has not quite ended: its start tells.
    is_next = living is not None and (living.id != own or (living.start or 0.0) > end.time)
    if end.exit_code != 0 and living is not None and is_next and living.state != "COMPLETING":
        return Verdict(state=RunState.starting, text=f"{over}; job {living.id} starts the next one")
    if (refused := _refused(signs, jobs)) is not None:
        return refused
    if end.exit_code != 0 and end.next == _PUT_BACK and jobs.queue is not None and jobs.queue.asked <= end.time:
        told = f"{over}; its job {own} puts itself back into the queue, which was not asked since"
        return Verdict(state=RunState.requeued, text=told)
    return Verdict(state=RunState.over, text=over, exit_code=end.exit_code)


def _silent(signs: Signs, jobs: Jobs, now: float) -> Verdict:
    since = time.strftime("%H:%M:%S", time.localtime(now - signs.silent_s))
    told = f"no sign of life of attempt {signs.attempt} for {signs.silent_s:.0f} s (since {since})"
    pending, living = jobs.pending(), jobs.living()
    if pending is not None:
        return Verdict(state=RunState.requeued, text=f"{told}; job {pending.id} waits in the queue again ({pending.reason})")
    if living is not None:
        return Verdict(state=RunState.silent, text=f"{told}; job {living.id} is {living.state.lower()} on {living.nodes}")
    if (refused := _refused(signs, jobs)) is not None:
        return refused
    job = signs.start.job if signs.start is not None else ""
    if job and jobs.can_tell:
        return Verdict(state=RunState.dead, text=f"{told}, and job {job} is gone: it ended without a word")
    return Verdict(state=RunState.silent, text=told)


def _refused(signs: Signs, jobs: Jobs) -> Verdict | None:
    """The newest job ended before it began an attempt; None: it did not. One that waits or runs is not asked."""
    refusal = signs.refusal
    if refusal is None or (jobs.newest is not None and jobs.newest.job != refusal.job):
        return None
    told = f"job {refusal.job} was refused before attempt {signs.attempt + 1}: {refusal.reason} (exit code {refusal.exit_code})"
    return Verdict(state=RunState.over, text=told, exit_code=refusal.exit_code)
