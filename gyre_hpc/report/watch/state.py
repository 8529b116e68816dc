"""Whether a run lives, judged by what its folder and the queue show. Pure.

never_started -> waiting -> starting -> running -> over
                    ^                      |  \\-> silent -> running | dead
                    \\------ requeued <-----+---> ended -> requeued | starting | over

Invariant: an answer of the queue from before an attempt's end, or before a job's submission, says nothing of them.
"""

import enum
import time
from dataclasses import dataclass

from gyre_hpc.report.watch.jobs import Jobs
from gyre_hpc.report.watch.signs import SILENT_S, End, Signs


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
    ended = "ended"
    """An attempt is over; whether another follows is not known yet."""
    dead = "dead"
    """It ended without a word, and no job of it is left."""
    over = "over"


FINAL = frozenset({RunState.over, RunState.dead, RunState.never_started})
"""Nothing follows by itself."""


_PUT_BACK, _LEFT, _NOTHING = "requeue", "leave", "end"
"""signs.End.next: its job puts itself back; SLURM or a successor goes on; nobody does."""


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
    own = signs.start.job if signs.start is not None else ""
    newest = jobs.newest
    again = newest.job if newest is not None and newest.submitted > end.time else ""
    is_heard = jobs.is_heard_since(max(end.time, newest.submitted if newest is not None else 0.0))
    is_done = end.exit_code == 0 and not again
    found = _shown(end, own, jobs) if is_heard and not is_done else None
    if found is None and (refused := _refused(signs, jobs)) is not None:
        return refused
    if found is None and jobs.queue is not None and not (is_heard or is_done):
        found = _expected(end, own, again, jobs)
    if found is None:
        return Verdict(state=RunState.over, text=over, exit_code=end.exit_code)
    state, what = found
    return Verdict(state=state, text=f"{over}; {what}")


def _shown(end: End, own: str, jobs: Jobs) -> tuple[RunState, str] | None:
    """By the queue as it was after the end; None: it shows nothing that follows."""
    pending, living = jobs.pending(), jobs.living()
    if pending is not None:
        return RunState.requeued, f"job {pending.id} waits for the next one ({pending.reason})"
    if living is None:
        return None
    # The same job again, or one that has not quite ended: its start tells.
    if living.state != "COMPLETING" and (living.id != own or (living.start or 0.0) > end.time):
        return RunState.starting, f"job {living.id} starts the next one"
    if end.next == _NOTHING:
        return None
    return RunState.ended, f"what follows is not known yet: its job {living.id} is {living.state.lower()} on {living.nodes}"


def _expected(end: End, own: str, again: str, jobs: Jobs) -> tuple[RunState, str] | None:
    """While the queue was not heard since; None: there is nothing to wait for."""
    if again:
        return RunState.requeued, f"job {again} was submitted since; the queue was not asked since"
    if not own or end.next == _NOTHING:
        return None
    if end.next == _PUT_BACK:
        return RunState.requeued, f"its job {own} puts itself back into the queue, which was not asked since"
    if end.next == _LEFT:
        successor = jobs.newest.job if jobs.newest is not None and jobs.newest.job != own else ""
        who = f"job {successor} goes on" if successor else f"SLURM puts job {own} back"
        return RunState.requeued, f"{who}; the queue was not asked since"
    return RunState.ended, f"its job {own} has not said what follows, and the queue was not asked since"


def _silent(signs: Signs, jobs: Jobs, now: float) -> Verdict:
    since = time.strftime("%H:%M:%S", time.localtime(now - signs.silent_s))
    told = f"no sign of life of attempt {signs.attempt} for {signs.silent_s:.0f} s (since {since})"
    pending, living = jobs.pending(), jobs.living()
    is_heard = signs.start is None or jobs.is_heard_since(signs.start.unix_s)
    if pending is not None and is_heard:
        return Verdict(state=RunState.requeued, text=f"{told}; job {pending.id} waits in the queue again ({pending.reason})")
    if living is not None:
        return Verdict(state=RunState.silent, text=f"{told}; job {living.id} is {living.state.lower()} on {living.nodes}")
    if (refused := _refused(signs, jobs)) is not None:
        return refused
    job = signs.start.job if signs.start is not None else ""
    if job and jobs.can_tell and is_heard:
        return Verdict(state=RunState.dead, text=f"{told}, and job {job} is gone: it ended without a word")
    return Verdict(state=RunState.silent, text=told)


def _refused(signs: Signs, jobs: Jobs) -> Verdict | None:
    """The newest job ended before it began an attempt; None: it did not. One that waits or runs is not asked."""
    refusal = signs.refusal
    if refusal is None or (jobs.newest is not None and jobs.newest.job != refusal.job):
        return None
    told = f"job {refusal.job} was refused before attempt {signs.attempt + 1}: {refusal.reason} (exit code {refusal.exit_code})"
    return Verdict(state=RunState.over, text=told, exit_code=refusal.exit_code)
