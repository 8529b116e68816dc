"""Preemption does not lose executions: whole runs of real processes, killed at once and taken up by another attempt.

Engines are deterministic and weights are held, so the resumed run must say what an undisturbed one says: the same calls, the same token
ids, the same log-probs to the last bit.
"""

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gyre_hpc.config.place import cache_folder
from gyre_hpc.config.schema import Config
from gyre_hpc.harnesses import create_harness
from gyre_hpc.harnesses.place import installed_folder
from gyre_hpc.launch.harness_install import is_installed
from gyre_hpc.protocol.journal import CallProgress, Replayed, TakenUp
from gyre_hpc.trajectory.segment import read_records
from tests.fakes import clocked_harness
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


def struck(folder: Path, *overrides: str, calls: int, within_s: float = 90.0) -> dict[str, Any]:
    """Group `replay` of a rehearsed run that lost its node after so many calls and was finished by another attempt."""
    cache = [one for one in overrides if one.startswith("paths.cache=")]
    with WholeRun(folder, "+experiment=rehearsal", *REHEARSED, *overrides) as run:
        run.wait_until(lambda: train_calls(run) >= calls, f"{calls} calls", within_s)
        kill_all(run)
    with WholeRun(folder, f"resume={run.folder.root}", *cache) as again:
        assert again.wait_end(within_s=200) == 0, again.printed
    summary, replay = again.summary(), dict(again.summary()["replay"])
    assert (summary["exit_code"], summary["attempts"], summary["updates"]) == (0, 2, 1)
    assert (summary["tokens"]["lost"], summary["tokens"]["resampled"]) == (0, 0)
    assert summary["executions"]["infra_error"] == 0
    consumed = again.consumed()
    assert len(consumed) == len(set(consumed)) > 0
    expect_sampled_once(again)
    print(replay)
    return replay


REHEARSED = (
    "cluster.cells=2", "algo.groups_per_batch=2", "algo.group_size=2", "algo.updates=1", "gateway.progress_tokens=4",
    # Calls are slowed down here, and nobody waits for the update: contexts of a real harness would take it minutes.
    "trainer.timed_tokens_per_s=200000",
)  # fmt: skip


def clocked(*more: str) -> tuple[str, ...]:
    program = Path(clocked_harness.__file__)
    words = [sys.executable, str(program), "{base_url}", "{api_key}", "{instruction}", *more]
    readable = [str(program.parent), sys.prefix, sys.base_prefix]
    return "harness=command", f"harness.command={quoted(words)}", f"harness.readable={quoted(readable)}"


def quoted(words: list[str]) -> str:
    return "[" + ",".join(f"'{word}'" for word in words) + "]"


@pytest.mark.rare
def test_a_harness_that_tells_the_time_in_every_request_is_replayed(tmp_path: Path) -> None:
    replay = struck(tmp_path, *clocked(), "engine.time_scale=4", "model.max_context=16384", calls=2 * clocked_harness.CALLS)
    assert replay["executions_replayed"] > 0 and replay["executions_restarted"] == 0 and replay["diverged"] == 0
    assert replay["tokens_saved_share"] >= 0.9


@pytest.mark.rare
def test_a_harness_whose_tools_find_something_else_branches_where_it_does_and_is_counted(tmp_path: Path) -> None:
    replay = struck(tmp_path, *clocked("stray"), "engine.time_scale=4", "model.max_context=16384", calls=2 * clocked_harness.CALLS)
    assert replay["executions_replayed"] > 0 and replay["executions_restarted"] == 0
    assert 0 < replay["diverged"] <= replay["executions_replayed"]
    assert 0 < replay["tokens_saved_share"] < 1, "the first call of each is what was recorded"


@pytest.mark.parametrize("name", ["codex", *(pytest.param(name, marks=pytest.mark.rare) for name in ("qwen_code", "claude_code"))])
def test_a_real_harness_is_replayed(name: str, needs: Callable[[str, str], None], tmp_path: Path) -> None:
    cache, harness = cache_folder(Config()), create_harness(name)
    needs(name, "" if is_installed(installed_folder(cache, harness, harness.version)) else f"gyre harness install {name}")
    # Slow calls, and half of the executions in their first one at least: something is at stake whenever the kill comes.
    slow = ("engine.time_scale=4", "model.max_context=65536")
    replay = struck(tmp_path, f"harness={name}", *slow, f"paths.cache={cache}", calls=2, within_s=150)
    assert replay["executions_replayed"] > 0 and replay["executions_restarted"] == 0
    assert replay["tokens_saved_share"] >= 0.9
