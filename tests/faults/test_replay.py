"""Preemption does not lose executions: whole runs of real processes, killed at once and taken up by another attempt.

Engines are deterministic and weights are held, so the resumed run must say what an undisturbed one says: the same calls, the same token
ids, the same log-probs to the last bit.
"""

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from gyre_hpc.protocol.journal import CallProgress, Replayed, TakenUp
from gyre_hpc.trajectory.segment import read_records
from tests.fakes.live_faults import expect_same_calls, said_of
from tests.fakes.whole_run import WholeRun

UPDATES = 1
SMALL = (
    "algo.groups_per_batch=2", "algo.group_size=4", f"algo.updates={UPDATES}", "cluster.cells=2", "harness.max_output_tokens=96",
    "evaluation.before=false", "evaluation.after=false", "evaluation.tasks=0", "warm_start.executions=30", "warm_start.epochs=2",
    "engine.deterministic=true", "engine.max_batch=384", "trainer.lr=0", "trainer.micro_batch_tokens=48", "algo.temperature=1.8",
    "gateway.progress_tokens=4", "cluster.runner_capacity=8", "suite.soft_deadline_s=300", "suite.hard_deadline_s=310",
)  # fmt: skip
pytestmark = pytest.mark.timeout(300)


def kill_all(run: WholeRun) -> None:
    """As a node that loses power."""
    for _ in range(3):
        for pid in [*run.processes(), run.process.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
    run.process.wait()
    assert not run.processes()


def train_calls(run: WholeRun) -> int:
    return sum(event.fields["call"].startswith("train-") for event in run.events("call_ended"))


def records(run: WholeRun, attempt: int) -> list[object]:
    paths = sorted(run.folder.journal.glob(f"gateway-*-{attempt}-*.gyj"))
    return [record for path in paths for record in read_records(path.read_bytes())[0]]


def expect_sampled_once(run: WholeRun) -> None:
    """No position of any call is in the journal twice, over all attempts."""
    ends: Counter[str] = Counter()
    for path in sorted(run.folder.journal.glob("*.gyj"), key=lambda path: path.stem.split("-")[2:]):
        for record in read_records(path.read_bytes())[0]:
            if isinstance(record, CallProgress):
                assert record.start == ends[record.call], record
                ends[record.call] += len(record.output_ids) // 4


def test_a_run_that_lost_its_node_in_mid_batch_says_what_an_undisturbed_one_says(tmp_path: Path) -> None:
    cache = f"paths.cache={tmp_path / 'cache'}"
    (tmp_path / "whole").mkdir()
    with WholeRun(tmp_path / "whole", *SMALL, cache) as whole:
        assert whole.wait_end() == 0, whole.printed
        reference = said_of(whole)
    num_calls = sum(map(len, reference.values()))
    (tmp_path / "struck").mkdir()
    with WholeRun(tmp_path / "struck", *SMALL, cache) as run:
        run.wait_until(lambda: train_calls(run) >= num_calls // 2, "half of the calls")
        kill_all(run)
    with WholeRun(tmp_path / "struck", f"resume={run.folder.root}", cache) as again:
        assert again.wait_end() == 0, again.printed
    summary = again.summary()
    replay = summary["replay"]
    print(replay)
    assert (summary["exit_code"], summary["attempts"], summary["updates"]) == (0, 2, UPDATES)
    assert replay["executions_replayed"] > 1 and replay["executions_restarted"] == 0, replay
    assert replay["tokens_saved_share"] >= 0.9 and replay["time_saved_share"] >= 0.9 and replay["diverged"] == 0, replay
    assert (summary["tokens"]["lost"], summary["tokens"]["resampled"]) == (0, 0)
    consumed = again.consumed()
    assert len(consumed) == len(set(consumed)) == UPDATES * 8, "nobody is trained twice"
    second = records(again, 2)
    assert any(isinstance(one, TakenUp) for one in second) and any(isinstance(one, Replayed) for one in second)
    expect_sampled_once(again)
    expect_same_calls(again, reference)
