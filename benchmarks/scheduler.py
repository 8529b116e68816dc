"""How long one decision takes: python -m benchmarks.scheduler [--quick].

The scheduler decides on every event, so at 1,000 cells and 10,000 executions a decision must stay under 1 ms. Prints a
table; the last line is JSON: {"benchmark", "limit_ms", "decide_ms": {mode: median}, "choose_batch_ms", "ok"}.
"""

import argparse
import json
import math
import statistics
from collections.abc import Callable

from gyre_hpc.clock import monotonic_s
from gyre_hpc.config.schema import SchedulerConfig, SchedulerMode, Staleness
from gyre_hpc.scheduler.base import EngineCurve, Facts
from gyre_hpc.scheduler.choose import decide
from gyre_hpc.scheduler.staleness import Candidate, choose_batch

CELLS, EXECUTIONS, GROUP_SIZE, MAX_STALENESS = 1_000, 10_000, 8, 3
LIMIT_MS = 1.0
MEASURED = EngineCurve(points=tuple((float(2**n), 4000 * (1 - math.exp(-(2**n) / 24))) for n in range(9)))


def busy(cells: int, live: int) -> Facts:
    """A run in full swing: half a batch ready, some cells training, the search for `cells needed` at its longest."""
    return Facts(
        now=5000.0,
        cells=cells,
        training=cells // 5,
        core_training=True,
        live=live,
        groups_per_batch=live // GROUP_SIZE // (MAX_STALENESS + 1),
        groups_ready=live // GROUP_SIZE // (MAX_STALENESS + 1) // 2,
        batch_full=False,
        batch_open=True,
        gate_closed=True,
        micro_batches_waiting=400,
        ready_work_s=40_000.0,
        cells_busy_training=cells // 6,
        update_in_progress=False,
        switch_s=12.0,
        pull_s=5.0,
        last_lend=4000.0,
        kv_tokens_live=live * 50_000,
        kv_tokens_per_cell=2_000_000,
        curve=MEASURED,
    )


def timed_ms(work: Callable[[], object], repeats: int) -> tuple[float, float]:
    """(median, p99) milliseconds of one call."""
    taken = []
    for _ in range(repeats):
        start = monotonic_s()
        work()
        taken.append((monotonic_s() - start) * 1e3)
    return statistics.median(taken), sorted(taken)[int(0.99 * (len(taken) - 1))]


def main() -> None:
    parser = argparse.ArgumentParser(description="Time of one scheduling decision.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the repeats")
    repeats = 200 if parser.parse_args().quick else 2000
    facts, rows = busy(CELLS, EXECUTIONS), {}
    for mode in SchedulerMode:
        config = SchedulerConfig(mode=mode, split=CELLS // 5)
        rows[mode.name] = timed_ms(lambda config=config: decide(facts, config), repeats)  # type: ignore[misc]
    groups = [Candidate(id=n, version=n % (MAX_STALENESS + 1)) for n in range(EXECUTIONS // GROUP_SIZE)]
    half, size, waiting = len(groups) // 2, facts.groups_per_batch, SchedulerConfig(staleness=Staleness.wait, max_staleness=MAX_STALENESS)
    batch = timed_ms(lambda: choose_batch(groups[:half], groups[half:], 3, waiting, groups_per_batch=size), repeats // 10)
    print(f"{CELLS} cells, {EXECUTIONS} executions, {repeats} repeats\n{'decision':<16}{'median ms':>12}{'p99 ms':>12}")
    for name, (median, p99) in [*rows.items(), ("choose_batch", batch)]:
        print(f"{name:<16}{median:>12.4f}{p99:>12.4f}")
    medians = {name: round(median, 5) for name, (median, _) in rows.items()}
    print(
        json.dumps(
            {
                "benchmark": "scheduler",
                "cells": CELLS,
                "executions": EXECUTIONS,
                "limit_ms": LIMIT_MS,
                "decide_ms": medians,
                "choose_batch_ms": round(batch[0], 5),
                "ok": max(medians.values()) < LIMIT_MS,
            }
        )
    )


if __name__ == "__main__":
    main()
