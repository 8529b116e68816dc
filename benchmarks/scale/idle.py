"""Part `idle`: every cell serves, every agent waits for an answer that does not come. What does the control plane use meanwhile?"""

import time

from benchmarks.scale.figures import Figure
from benchmarks.scale.observed import CONTROL, WatchedRun, cpu_s, scratch
from benchmarks.scale.timed import REHEARSAL, cells

CELLS = 64
PROMISED = 0.02
"""Of a core, all processes of the control plane together."""
_SETTLED_S = 5.0
WAITING = (
    "algo.groups_per_batch=2", "algo.group_size=4", "cluster.runner_capacity=16",
    # An answer takes days.
    "engine.timed_tokens_per_s=1e-4", "engine.timed_prefill_tokens_per_s=1e-3",
    "suite.soft_deadline_s=86400", "suite.hard_deadline_s=90000", "gateway.call_deadline_s=90000",
)  # fmt: skip


def measure(quick: bool) -> list[Figure]:
    """CPU over 15 s, or 120 s, in which nothing happens."""
    window_s = 15.0 if quick else 120.0
    with scratch() as folder, WatchedRun(folder / "run", *REHEARSAL, *cells(CELLS), *WAITING) as run:
        run.until(lambda: waits(run), "every agent waits", 180)
        time.sleep(_SETTLED_S)
        pids = run.pids()
        before, at = cpu_s(pids), time.monotonic()
        time.sleep(window_s)
        took_s = time.monotonic() - at
        shares = {kind: (used - before[kind]) / took_s for kind, used in cpu_s(pids).items()}
        run.stop()
    total = sum(shares[kind] for kind in CONTROL)
    note = f"{CELLS} cells, {window_s:.0f} s; promised below {PROMISED:g}"
    figures = [Figure(name="idle_share_of_core", value=total, unit="cores", note=note)]
    figures += [Figure(name=f"idle_share_{kind}", value=shares[kind], unit="cores") for kind in CONTROL]
    per_cell = shares["cells"] / CELLS
    note = "beside the runner, one for each execution that runs, whatever the cells"
    figures.append(Figure(name="idle_share_wardens", value=shares.get("warden", 0.0), unit="cores", note=note))
    return [*figures, Figure(name="idle_share_per_timed_cell", value=per_cell, unit="cores", note="with its own heartbeats")]


def waits(run: WatchedRun) -> bool:
    """All cells are there, and calls wait in them."""
    status = run.status
    if status is None or len([cell for cell in status.cells if cell.state == "rollout"]) < CELLS:
        return False
    return sum(shard.live for shard in status.gateways.values()) >= 8
