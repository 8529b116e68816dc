"""The live view of a run that somebody else started."""

from gyre_hpc.clock import monotonic_s
from gyre_hpc.report.view import View, follow, make_view
from gyre_hpc.report.watch.leaving import leave
from gyre_hpc.report.watch.squeue import FRESH_S
from gyre_hpc.report.watch.state import FINAL
from gyre_hpc.report.watch.watched import Run, watch

_JUDGE_EVERY_S = 2.0


def attach(run: Run, when_left: int = 0) -> int:
    """Until nothing follows any more, or Ctrl-C, which leaves the run alone. Exit code: of the run, 1 if it did not say; `when_left` while it
    goes on."""
    judge = _Judge(run)
    try:
        with make_view() as view:
            judge.view = view
            follow(run.folder, judge.is_over, view)
    except KeyboardInterrupt:
        leave(run.folder)
        return when_left
    code = watch(run).verdict.exit_code
    return 1 if code is None else code


class _Judge:
    """Says each change of state, and when the last one has come."""

    def __init__(self, run: Run) -> None:
        self.view: View | None = None
        self._run, self._at, self._said = run, 0.0, ""
        self._final_since: float | None = None

    def is_over(self) -> bool:
        now = monotonic_s()
        if self._said and now - self._at < _JUDGE_EVERY_S:
            return False
        self._at = now
        watched = watch(self._run, patient=False)
        verdict = watched.verdict
        if verdict.state in FINAL and watched.signs.end is None:
            watched = watch(self._run)  # no end is taken for one by a clock alone
            verdict = watched.verdict
        if verdict.state.value != self._said and self.view is not None:
            self.view.say(f"{verdict.state.value.replace('_', ' ')}: {verdict.text}")
        self._said = verdict.state.value
        if verdict.state not in FINAL:
            self._final_since = None
            return False
        # A job that puts itself back into the queue does so after the attempt's end, and the queue is asked seldom.
        end = watched.signs.end
        may_follow = bool(watched.jobs.submitted) and end is not None and end.exit_code != 0 and end.next != "end"
        self._final_since = now if self._final_since is None else self._final_since
        return not may_follow or now - self._final_since > FRESH_S + 10.0
