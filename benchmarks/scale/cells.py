"""Part `cells`: a whole run with many timed cells, real controller, gateway, runner and harness processes."""

from benchmarks.scale.costs import control_costs
from benchmarks.scale.figures import Figure
from benchmarks.scale.observed import CONTROL, WatchedRun, scratch, totals
from benchmarks.scale.timed import REHEARSAL, cells

CELLS = 64
GROUP_SIZE = 8
WORK = (f"algo.group_size={GROUP_SIZE}", "cluster.runner_capacity=16", "engine.time_scale=4")
"""Harnesses take most of the machine."""


def measure(quick: bool) -> list[Figure]:
    """2 updates of 2 groups, or 8 of 8."""
    return run_of(CELLS, updates=2 if quick else 8, groups=2 if quick else 8, prefix="cells")


def run_of(number: int, *, updates: int, groups: int, prefix: str) -> list[Figure]:
    size = (f"algo.updates={updates}", f"algo.groups_per_batch={groups}")
    with scratch() as folder, WatchedRun(folder / "run", *REHEARSAL, *cells(number), *WORK, *size) as run:
        run.wait(900)
        up_s = run.all_up_s(number + len(CONTROL) - 1)
        applied = [event.time for event in run.events("applied")]
        orders = totals(run.events("traffic"), "sent", "controller")["Order"][0]
        costs = control_costs(run, prefix)
    return [
        Figure(
            name=f"{prefix}_all_up_s", value=up_s, unit="s", note=f"{number} cells in processes of {cells(number)[1].rpartition('=')[2]}"
        ),
        Figure(
            name=f"{prefix}_update_s",
            value=(applied[-1] - applied[0]) / max(1, updates - 1),
            unit="s",
            note=f"{groups * GROUP_SIZE} executions each",
        ),
        Figure(name=f"{prefix}_orders_per_cell_and_update", value=orders / number / updates, unit=""),
        *costs,
    ]
