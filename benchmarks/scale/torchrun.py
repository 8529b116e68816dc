"""Part `torchrun`: cells of real ranks, each with a torchrun of its own, a tiny model and gloo."""

from benchmarks.scale.costs import control_costs
from benchmarks.scale.figures import Figure
from benchmarks.scale.observed import CONTROL, WatchedRun, cpu_s, scratch

FULL, QUICK = ((8, 1), (4, 2)), ((4, 1),)
"""Cells and ranks of each."""
WORK = (
    "algo.group_size=4", "cluster.runner_capacity=8", "cluster.start_deadline_s=400",
    # Random weights: nobody learns, nobody speaks well.
    "warm_start.executions=0", "warm_start.epochs=0", "evaluation.before=false", "evaluation.after=false", "gateway.malformed_window=0",
    "suite.fruitless_window=0", "harness.max_calls=3", "sandbox=none", "tracker=none",
)  # fmt: skip


def measure(quick: bool) -> list[Figure]:
    """One update of 4 executions, or 3 of 16."""
    updates, groups = (1, 1) if quick else (3, 4)
    return [figure for number, ranks in (QUICK if quick else FULL) for figure in _run(number, ranks, updates, groups)]


def _run(number: int, ranks: int, updates: int, groups: int) -> list[Figure]:
    prefix = f"torchrun_{number}x{ranks}"
    shape = (f"cluster.cells={number}", f"cluster.ranks_per_cell={ranks}", f"algo.updates={updates}", f"algo.groups_per_batch={groups}")
    processes = number + len(CONTROL) - 1
    with scratch() as folder, WatchedRun(folder / "run", *WORK, *shape) as run:
        run.until(lambda: len(run.events("process_registered")) >= processes, "all are up", 500)
        started = cpu_s(run.pids())
        up_s = run.all_up_s(processes)
        run.wait(900)
        costs = control_costs(run, prefix)
    per_cell = (started["cell"] + started.get("cell_agent", 0.0)) / number
    return [
        Figure(name=f"{prefix}_all_up_s", value=up_s, unit="s", note=f"{number} cells of {ranks} ranks at once"),
        Figure(name=f"{prefix}_start_cpu_s_per_cell", value=per_cell, unit="s", note="agent and ranks, until all are up"),
        *costs,
    ]
