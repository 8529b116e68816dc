"""Whole runs of launch.py whose cells serve with a real SGLang, on CPU: they train, change roles, outlive kills and leave nothing."""

import os
import signal
from pathlib import Path

import pytest

from gyre_hpc.engines.sglang.process_table import ranks_below
from gyre_hpc.observability.status import CellStatus, read_status
from gyre_hpc.protocol.to_batch import CellReport
from tests.fakes.live_faults import expect_sound, reports
from tests.fakes.live_run import wait_dead
from tests.fakes.sglang_here import sglang_config
from tests.fakes.whole_run import WholeRun, unended

pytestmark = pytest.mark.timeout(1800)
START_S = 600.0
"""Two servers start at once, which takes 40 s of two cores that have nothing else to do."""
TINY = (
    "cluster.cells=2", "algo.groups_per_batch=3", "algo.group_size=4", "engine.kv_tokens=16384", "engine.max_batch=16",
    "evaluation.tasks=0", "evaluation.before=false", "evaluation.after=false", "tracker=none", "debug.record_inputs=true",
)  # fmt: skip
LONG_CALLS = (
    "warm_start.executions=0",
    "warm_start.epochs=0",
    "model.init_std=0.1",
    "harness.max_output_tokens=100",
    "harness.max_calls=4",
)
"""A model that knows nothing talks until it is cut off: there is always a call to interrupt."""


def with_sglang() -> tuple[str, ...]:
    sglang = sglang_config()
    return (
        "engine=sglang", f"engine.sglang.environment={sglang.environment}", f"engine.sglang.launcher={sglang.launcher}",
        "engine.sglang.device=cpu",
    )  # fmt: skip


def test_the_first_updates_of_the_quickstart_are_made_by_cells_that_serve_with_sglang(tmp_path: Path):
    # Few of so little trained a model's executions score, so that gradients are nil: the decay is what changes the weights.
    short = ("algo.updates=3", "warm_start.executions=20", "warm_start.epochs=1", "trainer.weight_decay=20")
    with WholeRun(tmp_path, *with_sglang(), *TINY, *short) as run:
        assert run.wait_end(within_s=START_S + 300) == 0, run.printed
        expect_sound(run, updates=3)
        servers = {report.cell: report.engine_pids for report in reports(run) if report.engine_pids}
        left = [pid for pids in servers.values() for pid in pids if Path(f"/proc/{pid}").exists()]
    assert set(servers) == {"cell-0", "cell-1"} and not left
    summary = run.summary()
    assert all(summary["role_switches"][direction] >= 1 for direction in ("rollout_to_train", "train_to_rollout"))
    assert min(event.fields["update_norm"] for event in run.events("applied")) > 0.1, "each version is another model"
    # What SGLang said of its tokens is what the trainer's own model says of them, in each version.
    assert summary["on_policy_tokens"] > 100 and summary["max_logprob_gap"] < 1e-4
    assert summary["tokens"]["trained"] > 0 and not unended(run.events())


def cell(run: WholeRun, name: str) -> CellStatus | None:
    status = read_status(run.folder.status)
    return None if status is None else next((one for one in status.cells if one.name == name), None)


def serves(run: WholeRun, name: str, num_calls: int) -> bool:
    seen = cell(run, name)
    return seen is not None and len(seen.engine_pids) > 2 and seen.state == "rollout" and seen.live >= num_calls


def scheduler_of(seen: CellStatus) -> int:
    """The process that computes: what the kernel takes first when memory runs out."""
    (pid,) = [rank.pid for rank, title in ranks_below(seen.engine_pids[0]).items() if "schedul" in title]
    return pid


def seen_of(run: WholeRun, name: str) -> dict[int, CellReport]:
    """By incarnation: its first report that shows its server."""
    return {report.incarnation: report for report in reversed(reports(run)) if report.cell == name and report.engine_pids}


def test_a_killed_cell_finds_its_server_again_and_a_killed_server_costs_no_token(tmp_path: Path):
    with WholeRun(tmp_path, *with_sglang(), *TINY, *LONG_CALLS, "algo.updates=6") as run:
        run.wait_until(lambda: serves(run, "cell-1", num_calls=1), "cell-1 serving", within_s=START_S)
        run.kill("cell-1")
        run.wait_event("process_registered", lambda event: event.fields == event.fields | {"process": "cell-1", "incarnation": 2})
        run.wait_until(lambda: serves(run, "cell-1", num_calls=2), "cell-1 serving again")
        seen = cell(run, "cell-1")
        assert seen is not None
        os.kill(scheduler_of(seen), signal.SIGKILL)
        assert run.wait_end(within_s=START_S) == 0, run.printed
        expect_sound(run, updates=6, lost=("cell-1",))
        before, after = (seen_of(run, "cell-1")[incarnation].engine_pids for incarnation in (1, 2))
        assert set(before) <= set(after), "its server was adopted"
        lost = [event.fields["reason"] for event in run.events("cell_lost") if event.fields["cell"] == "cell-1"]
        assert len(lost) == 2 and "lost its process sglang::schedul" in lost[1], lost
        assert {event.fields["cell"] for event in run.events("call_rerouted") if event.fields["why"] == "CellLost"} == {"cell-1"}


def test_a_run_whose_supervisor_is_killed_leaves_no_server(tmp_path: Path):
    with WholeRun(tmp_path, *with_sglang(), *TINY, *LONG_CALLS, "algo.updates=100") as run:
        run.wait_until(lambda: len(servers(run)) >= 2, "two servers starting", within_s=120)
        run.kill("supervisor")
        assert run.wait_end() != 0
        wait_dead(run.processes())


def servers(run: WholeRun) -> list[int]:
    """First processes of SGLang."""
    launcher = sglang_config().launcher.encode()
    return [pid for pid in run.processes() if launcher in arguments(pid)]


def arguments(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def test_a_cell_of_two_ranks_serves_with_a_server_that_divides_its_model_between_two(tmp_path: Path):
    # SGLang binds each rank to a core of its own, and wants to be told where there are fewer nodes of memory than ranks.
    two = ("cluster.cells=1", "cluster.ranks_per_cell=2", '+engine.sglang.environ.SGLANG_CPU_OMP_THREADS_BIND="0|1"')
    with WholeRun(tmp_path, *with_sglang(), *TINY, *two, *LONG_CALLS, "algo.updates=2", "trainer.weight_decay=20") as run:
        assert run.wait_end(within_s=START_S) == 0, run.printed
        expect_sound(run, updates=2)
    summary = run.summary()
    assert min(event.fields["update_norm"] for event in run.events("applied")) > 0.1, "each version is another model"
    assert summary["on_policy_tokens"] > 100 and summary["max_logprob_gap"] < 1e-4
