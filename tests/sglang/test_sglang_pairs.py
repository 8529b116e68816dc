"""Whole runs of launch.py whose cells are a pair beside real SGLang servers on CPU: one prefills, the other one decodes, both train."""

import os
import signal
from pathlib import Path

import pytest

from gyre_hpc.observability.status import CellStatus, read_status
from tests.fakes.live_faults import expect_sound, reports
from tests.fakes.live_run import is_alive
from tests.fakes.sglang_here import sglang_config
from tests.fakes.whole_run import WholeRun, unended
from tests.sglang.pair import need_mooncake

pytestmark = [pytest.mark.timeout(1800), pytest.mark.rare]
START_S = 600.0
"""Two servers start at once, which takes 40 s of two cores that have nothing else to do."""
TINY = (
    "cluster.cells=2", "algo.groups_per_batch=3", "algo.group_size=4", "engine.kv_tokens=16384", "engine.max_batch=16",
    "evaluation.tasks=0", "evaluation.before=false", "evaluation.after=false", "tracker=none", "debug.record_inputs=true",
    "warm_start.executions=0", "warm_start.epochs=0", "model.init_std=0.1", "harness.max_output_tokens=100", "harness.max_calls=4",
)  # fmt: skip


def with_a_pair() -> tuple[str, ...]:
    need_mooncake()
    sglang = sglang_config()
    return (
        "engine=sglang", f"engine.sglang.environment={sglang.environment}", f"engine.sglang.launcher={sglang.launcher}",
        "engine.sglang.device=cpu", "engine.sglang.kv=pd",
    )  # fmt: skip


def test_a_pair_of_cells_makes_updates_and_loses_no_token(tmp_path: Path):
    with WholeRun(tmp_path, *with_a_pair(), *TINY, "algo.updates=2", "trainer.weight_decay=20") as run:
        assert run.wait_end(within_s=START_S + 300) == 0, run.printed
        expect_sound(run, updates=2)
        servers = {report.cell: report.engine_pids for report in reports(run) if report.engine_pids}
        left = [pid for pids in servers.values() for pid in pids if is_alive(pid)]
    assert set(servers) == {"cell-0", "cell-1"} and not left
    assert max(report.live_requests for report in reports(run) if report.cell == "cell-0") == 0, "it only prefills"
    sampled = {report.cell: report.tokens.get("sampled", 0) for report in reports(run) if report.tokens}
    assert sampled["cell-0"] == 0 < sampled["cell-1"]
    summary = run.summary()
    switched = {event.fields["cell"] for event in run.events("switch")}
    assert switched == {"cell-0", "cell-1"}, "both train"
    assert min(event.fields["update_norm"] for event in run.events("applied")) > 0.1, "each version is another model"
    # Prompts were computed by other weights than the trainer's if this is large.
    assert summary["on_policy_tokens"] > 100 and summary["max_logprob_gap"] < 1e-4
    assert not unended(run.events())


def test_a_killed_prefilling_cell_costs_its_pair_no_token(tmp_path: Path):
    with WholeRun(tmp_path, *with_a_pair(), *TINY, "algo.updates=3") as run:
        run.wait_until(lambda: decodes(run), "cell-1 with calls", within_s=START_S)
        run.kill("cell-0")
        assert run.wait_end(within_s=START_S) == 0, run.printed
        expect_sound(run, updates=3, lost=("cell-0",))


def test_a_killed_prefilling_server_costs_its_pair_no_token(tmp_path: Path):
    with WholeRun(tmp_path, *with_a_pair(), *TINY, "algo.updates=3") as run:
        run.wait_until(lambda: decodes(run), "cell-1 with calls", within_s=START_S)
        seen = cell(run, "cell-0")
        assert seen is not None and len(seen.engine_pids) > 2
        os.kill(seen.engine_pids[-1], signal.SIGKILL)
        assert run.wait_end(within_s=START_S) == 0, run.printed
        expect_sound(run, updates=3, lost=("cell-0",))


def decodes(run: WholeRun) -> bool:
    seen = cell(run, "cell-1")
    return seen is not None and seen.state == "rollout" and seen.live >= 2


def cell(run: WholeRun, name: str) -> CellStatus | None:
    status = read_status(run.folder.status)
    return None if status is None else next((one for one in status.cells if one.name == name), None)
