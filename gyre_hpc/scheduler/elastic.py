"""Elastic: rule `press`. Lend cells while the last rollout cell is worth less than training pressure asks.

Invariants (each has a test):
  - a cell is lent only for data that pays for its switch, or because the batch is full;
  - rollout keeps a cell while executions are live, except when forced;
  - the core is in before every satellite and stays until the update;
  - no micro-batch is aborted, and no cell is recalled for want of room within `dwell_s` while data waits.
"""

import math

from gyre_hpc.config.schema import SchedulerConfig
from gyre_hpc.scheduler.base import Facts, Waterlevel
from gyre_hpc.scheduler.wish import Wish


def wish(facts: Facts, config: SchedulerConfig, level: Waterlevel) -> Wish:
    """Rule `press` of the notes on scheduling, §7."""
    if facts.update_in_progress:
        alone = facts.cells == 1 and facts.live > 0
        return Wish(want=max(1, facts.cells_busy_training), reason="update", may_pause=alone, forced=alone)
    if must_force(facts):
        return Wish(want=1, reason="forced", may_pause=True, forced=True)
    room = room_for_training(facts, level)
    data = fed_cells(facts, config)
    want, reason = (room, "rollout_needs_cells") if room < data else (data, "data")
    floor = _floor(facts)
    if want < floor:
        want, reason = floor, "core_stays" if floor == 1 else "micro_batch"
    if want < facts.training and facts.micro_batches_waiting > 0 and facts.now - facts.last_lend < config.dwell_s:
        want, reason = facts.training, "dwell"
    fits = cells_kv_spares(facts)
    if want > fits and not facts.batch_full:
        want, reason = max(fits, floor), "kv"
    return Wish(want=want, reason=reason)


def must_force(facts: Facts) -> bool:
    """The one exception: a single cell, its batch complete, the gate closed, executions live."""
    return facts.cells == 1 and facts.live > 0 and facts.batch_full and facts.gate_closed


def room_for_training(facts: Facts, level: Waterlevel) -> int:
    """Cells that rollout can spare; all of them only when nothing is live."""
    if facts.live == 0:
        return facts.cells
    return facts.cells - max(1, level.cells_needed)


def lead_s(facts: Facts, config: SchedulerConfig) -> float:
    """Seconds of ready work that pay for one cell's switch there and back."""
    return max(config.lead_floor_s, config.lead_factor * (facts.switch_s + facts.pull_s))


def fed_cells(facts: Facts, config: SchedulerConfig) -> int:
    """Cells the data can keep busy: those at work, and one more for each `lead_s` of waiting work."""
    lead = lead_s(facts, config)
    # A cell without a micro-batch of its own would only wait.
    more = facts.micro_batches_waiting
    if lead > 0:
        more = min(more, math.floor(facts.ready_work_s / lead))
    # A full batch always gets its core, also when it holds nothing to train: the update must be made.
    return max(facts.cells_busy_training + more, 1 if facts.batch_full else 0)


def cells_kv_spares(facts: Facts) -> int:
    """Cells that can leave while the KV of the live executions still fits on the others."""
    if facts.kv_tokens_per_cell <= 0:
        return facts.cells
    return max(0, facts.cells - math.ceil(facts.kv_tokens_live / facts.kv_tokens_per_cell))


def _floor(facts: Facts) -> int:
    core = 1 if facts.batch_open and facts.training > 0 else 0
    return max(core, facts.cells_busy_training)
