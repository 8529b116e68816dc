"""decide: facts in, the target number of training cells out. The mode wishes; the rules here hold in every mode.

The target always means: the core and want - 1 satellites. The batch machine moves one cell at a time towards it, core
first in and last out.

Invariants (each has a test):
  - 0 <= want <= cells;
  - no lend takes the last rollout cell from live executions, unless the mode pauses them and says so;
  - nobody is lent while there is no usable core, or while an evaluation runs;
  - a cell inside a micro-batch stays;
  - deciding again on the same facts, after moving, reaches a fixed point.
"""

from collections.abc import Callable

from gyre_hpc.config.schema import SchedulerConfig, SchedulerMode
from gyre_hpc.scheduler import async_split, colocate, colocate_carry, elastic
from gyre_hpc.scheduler.base import Decision, Facts, Waterlevel
from gyre_hpc.scheduler.waterlevel import waterlevel
from gyre_hpc.scheduler.wish import Wish

_MODES: dict[SchedulerMode, Callable[[Facts, SchedulerConfig, Waterlevel], Wish]] = {
    SchedulerMode.elastic: elastic.wish,
    SchedulerMode.colocate: colocate.wish,
    SchedulerMode.colocate_carry: colocate_carry.wish,
    SchedulerMode.async_split: async_split.wish,
}


def decide(facts: Facts, config: SchedulerConfig) -> Decision:
    """The one decision of this room, at one instant."""
    level = waterlevel(facts, config.theta0)
    wish = _nobody_may_train(facts) or _MODES[config.mode](facts, config, level)
    want, reason = _settle(wish, facts)
    paused = facts.live > 0 and 0 < facts.cells <= want
    return Decision(want=want, reason=reason, waterlevel=level, forced=wish.forced and paused, pause_rollout=paused)


def _nobody_may_train(facts: Facts) -> Wish | None:
    if facts.cells <= 0:
        return Wish(want=0, reason="no_cells")
    if facts.evaluating:
        return Wish(want=0, reason="evaluating")
    if not facts.core_usable:
        # Satellites finish what they hold; without a core no sum becomes an update.
        return Wish(want=0, reason="core_lost")
    return None


def _settle(wish: Wish, facts: Facts) -> tuple[int, str]:
    cells = max(0, facts.cells)
    busy = min(facts.cells_busy_training, cells)
    most = cells if wish.may_pause or facts.live == 0 else max(0, cells - 1)
    want, reason = wish.want, wish.reason
    if want > most:
        want, reason = most, "last_rollout_cell"
    if want > 0 and facts.core_usable and facts.training > 0 and not facts.core_training:
        # Satellites without their core: let the core in; when there is no room, first let the idle ones go.
        want, reason = (max(want, facts.training + 1), "core_first") if facts.training < most else (0, "core_first")
    if want < busy:
        want, reason = busy, "micro_batch"
    return want, reason
