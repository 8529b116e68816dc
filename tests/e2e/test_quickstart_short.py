"""The short run learns, its control does not, and elasticity is real in both. They share one warm start through the cache."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gyre_hpc.observability.events import Event
from tests.fakes.whole_run import WholeRun, unended

pytestmark = pytest.mark.timeout(1800)
SWITCHES_COUNT_LITTLE = "scheduler.lead_factor=2"
"""Satellites are lent when their switch pays. What one costs is the machine's affair, and on a slow one the default factor
of 20 rightly lends none; no test may hang on that. The default's share is a figure of `benchmarks.learning`."""
ENOUGH_TASKS = "evaluation.tasks=600"
"""The control's rise over 200 held-out tasks has a standard error of 4.5 points, as much as the control's bound; over 600 it is 2.6."""
PROMISED = {
    "pass_rate_before", "pass_rate_after", "updates", "wall_s", "cpu_s", "role_switches", "switch_s", "satellites_joined_mid_batch",
    "micro_batches_by_satellites_share", "calls_continued_elsewhere", "executions", "tokens", "max_logprob_gap", "on_policy_tokens",
    "idle_s", "blind_pass_rate", "updates_with_lend_and_recall", "staleness", "seed", "attempts", "format", "checkpoint",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Told:
    """What is left of a run that is over."""

    code: int
    printed: str
    summary: dict[str, Any]
    events: list[Event]
    root: Path
    left: set[int]
    """Processes."""


def carry_out(root: Path, *overrides: str) -> Told:
    root.mkdir()
    with WholeRun(
        root, "+experiment=quickstart_short", f"paths.cache={root.parent / 'cache'}", SWITCHES_COUNT_LITTLE, ENOUGH_TASKS, *overrides
    ) as run:
        code = run.wait_end(within_s=900)
        assert code == 0, run.printed
        return Told(code=code, printed=run.printed, summary=run.summary(), events=run.events(), root=run.folder.root, left=run.processes())


@pytest.fixture(scope="module")
def learning(tmp_path_factory: pytest.TempPathFactory) -> Told:
    return carry_out(tmp_path_factory.getbasetemp() / "learning")


@pytest.fixture(scope="module")
def control(learning: Told) -> Told:
    """The same with shuffled rewards; its warm start is the one of `learning`."""
    return carry_out(learning.root.parent.parent / "control", "algo.shuffle_rewards=true")


def test_the_run_learns_from_where_imitation_left_it(learning: Told):
    before, after = learning.summary["pass_rate_before"], learning.summary["pass_rate_after"]
    assert 0.10 <= before <= 0.35
    assert after - before >= 0.20


def test_shuffled_rewards_teach_nothing(learning: Told, control: Told):
    assert next(event.fields for event in control.events if event.kind == "warm_start")["cached"], "the warm start is shared"
    assert control.summary["pass_rate_before"] == learning.summary["pass_rate_before"], "same weights, tasks and sampling"
    assert control.summary["pass_rate_after"] <= control.summary["pass_rate_before"] + 0.05


def test_guessing_without_reading_a_file_passes_hardly_ever(learning: Told):
    assert learning.summary["blind_pass_rate"] < 0.10
    assert "blind script" in learning.printed


@pytest.mark.parametrize("which", ["learning", "control"])
def test_no_token_is_lost_or_sampled_twice_and_training_sees_what_was_sampled(which: str, request: pytest.FixtureRequest):
    summary = request.getfixturevalue(which).summary
    assert (summary["tokens"]["lost"], summary["tokens"]["resampled"]) == (0, 0)
    assert summary["on_policy_tokens"] > 0
    assert summary["max_logprob_gap"] < 1e-4
    assert summary["tokens"]["trained"] > 0


@pytest.mark.parametrize("which", ["learning", "control"])
def test_cells_change_roles_in_mid_batch_and_calls_go_on_elsewhere(which: str, request: pytest.FixtureRequest):
    summary = request.getfixturevalue(which).summary
    assert summary["updates"] == 6
    assert summary["updates_with_lend_and_recall"] >= summary["updates"] / 2
    assert summary["micro_batches_by_satellites_share"] >= 0.20
    assert summary["satellites_joined_mid_batch"] >= 1
    assert summary["calls_continued_elsewhere"] >= 1
    assert all(summary["role_switches"][direction] >= 1 for direction in ("rollout_to_train", "train_to_rollout"))


def test_executions_branch_and_each_comes_to_an_end(learning: Told):
    executions = learning.summary["executions"]
    ended = sum(executions[state] for state in ("scored", "partial", "unscored", "infra_error"))
    assert ended >= 6 * 12 * 8
    assert executions["branching"] >= 0.10 * ended
    assert not unended(learning.events)


def test_a_run_leaves_its_summary_and_report_and_no_process(learning: Told):
    assert set(learning.summary) >= PROMISED
    report = learning.root / "report.html"
    assert report.stat().st_size > 1000
    assert (learning.root / learning.summary["checkpoint"] / "DONE").exists()
    last = learning.printed.splitlines()[-1]
    assert last.startswith("quickstart_short: pass rate ") and last.endswith(f"report: {report}")
    assert not learning.left
