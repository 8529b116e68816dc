"""Async: a fixed split. `split` cells train for the whole run, the others serve.

When cells are lost the split shrinks so that one of each kind remains; a single cell trains only when nothing else
can progress, as in elastic.
"""

from gyre_hpc.config.schema import SchedulerConfig
from gyre_hpc.scheduler.base import Facts, Waterlevel
from gyre_hpc.scheduler.wish import Wish


def wish(facts: Facts, config: SchedulerConfig, level: Waterlevel) -> Wish:
    """The split, whatever the load."""
    if facts.cells > 1:
        return Wish(want=max(1, min(config.split, facts.cells - 1)), reason="split")
    if facts.update_in_progress or (facts.batch_full and (facts.gate_closed or facts.live == 0)):
        forced = facts.live > 0
        return Wish(want=1, reason="forced" if forced else "split", may_pause=forced, forced=forced)
    return Wish(want=0, reason="one_cell_left")
