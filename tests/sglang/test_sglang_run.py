"""Whole runs of launch.py whose cells serve with a real SGLang, on CPU: they train and change roles."""

from pathlib import Path

import pytest

from tests.fakes.live_faults import expect_sound, reports
from tests.fakes.live_run import is_alive
from tests.fakes.whole_run import WholeRun, unended
from tests.sglang.small_run import LONG_CALLS, START_S, TINY, with_sglang

pytestmark = pytest.mark.timeout(1800)


def test_the_first_updates_of_the_quickstart_are_made_by_cells_that_serve_with_sglang(tmp_path: Path):
    # Few of so little trained a model's executions score, so that gradients are nil: the decay is what changes the weights.
    short = ("algo.updates=3", "warm_start.executions=20", "warm_start.epochs=1", "trainer.weight_decay=20")
    with WholeRun(tmp_path, *with_sglang(), *TINY, *short) as run:
        assert run.wait_end(within_s=START_S + 300) == 0, run.printed
        expect_sound(run, updates=3)
        servers = {report.cell: report.engine_pids for report in reports(run) if report.engine_pids}
        left = [pid for pids in servers.values() for pid in pids if is_alive(pid)]
    assert set(servers) == {"cell-0", "cell-1"} and not left
    summary = run.summary()
    assert all(summary["role_switches"][direction] >= 1 for direction in ("rollout_to_train", "train_to_rollout"))
    assert min(event.fields["update_norm"] for event in run.events("applied")) > 0.1, "each version is another model"
    # What SGLang said of its tokens is what the trainer's own model says of them, in each version.
    assert summary["on_policy_tokens"] > 100 and summary["max_logprob_gap"] < 1e-4
    assert summary["tokens"]["trained"] > 0 and not unended(run.events())


@pytest.mark.rare
def test_a_cell_of_two_ranks_serves_with_a_server_that_divides_its_model_between_two(tmp_path: Path):
    # SGLang binds each rank to a core of its own, and wants to be told where there are fewer nodes of memory than ranks.
    two = ("cluster.cells=1", "cluster.ranks_per_cell=2", '+engine.sglang.environ.SGLANG_CPU_OMP_THREADS_BIND="0|1"')
    with WholeRun(tmp_path, *with_sglang(), *TINY, *two, *LONG_CALLS, "algo.updates=2", "trainer.weight_decay=20") as run:
        assert run.wait_end(within_s=START_S) == 0, run.printed
        expect_sound(run, updates=2)
    summary = run.summary()
    assert min(event.fields["update_norm"] for event in run.events("applied")) > 0.1, "each version is another model"
    assert summary["on_policy_tokens"] > 100 and summary["max_logprob_gap"] < 1e-4
