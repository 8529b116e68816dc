"""Colocate, strict: one pool alternates. All executions of the window end, then every cell trains all its batches.

The articles' baseline. It uses the `window` staleness policy whatever the configuration says (staleness.policy_of).
"""

from gyre_hpc.config.schema import SchedulerConfig
from gyre_hpc.scheduler.base import Facts, Waterlevel
from gyre_hpc.scheduler.wish import Wish


def wish(facts: Facts, config: SchedulerConfig, level: Waterlevel) -> Wish:
    """Every cell, or none."""
    if facts.update_in_progress:
        return Wish(want=max(1, facts.training), reason="update", may_pause=True)
    # The second form needs no knowledge of windows: nothing runs, nothing may begin, and there is a batch to train.
    if facts.live == 0 and (facts.window_complete or (facts.gate_closed and facts.batch_full)):
        return Wish(want=facts.cells, reason="window_complete")
    return Wish(want=0, reason="window_running")
