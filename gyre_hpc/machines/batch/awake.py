"""Time in which this machine stood still is nobody else's silence, and nobody else's slowness.

A process that was suspended or starved wakes to an overdue tick, before it has read what was said to it meanwhile: whoever it judged then it would judge
for its own sleep. So deadlines of others go on from where they were, and what they said is read first.
"""

from collections.abc import Iterable

from gyre_hpc.machines.base import Effect, SetTimer
from gyre_hpc.machines.batch.state import State

NOTICED_S = 1.0
"""A tick that comes later than this tells of a standstill; less is what a busy machine is like, and deadlines are far longer."""


class Awake:
    """Of one timer that is always set."""

    def __init__(self, timer: str) -> None:
        self._timer = timer
        self._due: float | None = None

    def expect(self, now: float, effects: Iterable[Effect]) -> None:
        """These are to be carried out now."""
        for effect in effects:
            if isinstance(effect, SetTimer) and effect.key == self._timer:
                self._due = now + effect.after_s

    def overslept_s(self, now: float) -> float:
        """The timer fires now. Seconds that it comes too late; 0 for less than NOTICED_S."""
        late_s = now - self._due if self._due is not None else 0.0
        return late_s if late_s > NOTICED_S else 0.0


def put_off(state: State, now: float, by_s: float) -> None:
    """Every wait for others that may cost a cell, a commit or the run goes on as if it had begun so much later; now at the latest."""

    def later(since: float) -> float:
        return min(now, since + by_s)

    for cell in state.fleet.cells.values():
        cell.heard_at, cell.started_at = later(cell.heard_at), later(cell.started_at)
        cell.moving_since = None if cell.moving_since is None else later(cell.moving_since)
        cell.working_since = None if cell.working_since is None else later(cell.working_since)
        cell.broken_since = None if cell.broken_since is None else later(cell.broken_since)
        cell.stale_since = None if cell.stale_since is None else later(cell.stale_since)
    state.progress_at = later(state.progress_at)
    if state.commit is not None:
        state.commit.started_at = later(state.commit.started_at)
