"""Ends a run in good order."""

import sys
import time

from gyre_hpc.clock import monotonic_s
from gyre_hpc.protocol.people import CommandKind, Wish
from gyre_hpc.report.lines import span
from gyre_hpc.report.watch.ordering import ANSWER_S, answer_to, give, who
from gyre_hpc.report.watch.signs import read_end
from gyre_hpc.report.watch.state import FINAL, RunState
from gyre_hpc.report.watch.watched import Run, Watched, watch

END_S = 150.0
"""An orderly end takes 90 s at most; the first node may be that slow to hear of it."""
_LOOK_EVERY_S = 0.2
_WITHOUT_PROCESSES = frozenset({RunState.waiting, RunState.requeued, RunState.ended})


def stop(run: Run, *, wait: bool) -> int:
    """Say what was done. Exit code 0: it ends, or is over; 1: nothing of it answered."""
    watched = watch(run)
    if watched.verdict.state in FINAL:
        print(f"nothing to stop: {watched.verdict.text}")
        return 0
    if watched.verdict.state in _WITHOUT_PROCESSES or not watched.signs.attempt:
        print(f"no process of it runs: {watched.verdict.text}{_by_slurm(watched)}")
        return 1
    attempt = watched.signs.attempt
    given = give(run.folder, Wish(CommandKind.stop, attempt, reason=f"gyre stop by {who()}"), signs=watched.signs, token=run.token)
    print(given.how, flush=True)
    answer = answer_to(run.folder, given)
    if answer is None and read_end(run.folder, attempt) is None:
        print(f"no answer within {ANSWER_S:g} s: {watch(run).verdict.text}{_by_slurm(watched)}", file=sys.stderr)
        return 1
    if answer is not None:
        print(answer.text if answer.is_done else f"not done: {answer.text}", flush=True)
        if not answer.is_done:
            return 1
    return _wait(run, attempt, watched) if wait else 0


def _wait(run: Run, attempt: int, watched: Watched) -> int:
    began = monotonic_s()
    while (end := read_end(run.folder, attempt)) is None:
        if monotonic_s() - began > END_S:
            print(f"not over after {span(END_S)}: {watch(run).verdict.text}{_by_slurm(watched)}", file=sys.stderr)
            return 1
        time.sleep(_LOOK_EVERY_S)
    print(f"over after {span(monotonic_s() - began)}: {end.reason} (exit code {end.exit_code})")
    if end.exit_code:
        print(f"go on with: python launch.py resume={run.folder.root}")
    return 0


def _by_slurm(watched: Watched) -> str:
    """What helps where the run's own processes do not."""
    job = watched.jobs.pending() or watched.jobs.living()
    if job is not None:
        return f"; end its job by: scancel {job.id}"
    start = watched.signs.start
    if start is not None and start.job:
        return f"; end its job by: scancel {start.job}"
    return f"; its supervisor is process {start.pid} on {start.host}" if start is not None and start.pid else ""
