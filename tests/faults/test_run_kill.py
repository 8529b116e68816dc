"""A whole rehearsed run under real kills: nothing is left behind, nothing is lost, and what was begun is finished."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gyre_hpc.config.place import scratch_folder
from gyre_hpc.config.stored import load_config
from gyre_hpc.protocol.identity import ExecutionId
from gyre_hpc.supervisor.attempts import end_of
from gyre_hpc.train.checkpoint_folder import newest_whole
from tests.fakes.live_run import REPOSITORY, wait_dead, wait_for
from tests.fakes.whole_run import REHEARSAL, WholeRun, unended

UPDATES, GROUPS, SIZE = 3, 3, 4
RUN = (*REHEARSAL, f"algo.updates={UPDATES}", "engine.time_scale=4")
pytestmark = pytest.mark.timeout(240)


def expect_whole(run: WholeRun, attempts: int = 1) -> None:
    """The run made all its updates, each group in exactly one of them, and every execution came to an end."""
    consumed = run.consumed()
    assert len(consumed) == len(set(consumed)) == UPDATES * GROUPS * SIZE
    groups = [ExecutionId.parse(execution).group_id for execution in consumed]
    assert {groups.count(group) for group in groups} == {SIZE}
    summary = run.summary()
    assert (summary["updates"], summary["exit_code"], summary["attempts"]) == (UPDATES, 0, attempts)
    assert (summary["tokens"]["lost"], summary["tokens"]["resampled"]) == (0, 0)
    assert summary["tokens"]["sampled"] >= summary["tokens"]["trained"] > 0
    assert sum(summary["executions"][state] for state in ("scored", "partial")) >= UPDATES * GROUPS * SIZE
    if attempts == 1:  # an end that became durable in the last moment of an attempt is told by no event
        assert not unended(run.events())
    assert not run.half_written()
    applied = [event.fields["version"] for event in run.events("applied")]
    assert [int(version.partition(".")[2]) for version in applied][-1] == UPDATES


def in_mid_run(run: WholeRun) -> None:
    """One update is made, executions for the next are running."""
    run.wait_event("applied")
    first = run.events("applied")[0].time
    run.wait_event("call_ended", lambda event: event.time > first)


@pytest.mark.parametrize("victim", ["launcher", "supervisor"])
def test_a_run_killed_as_a_whole_leaves_no_process_and_is_finished_by_resume(tmp_path: Path, victim: str):
    with WholeRun(tmp_path, *RUN) as run:
        in_mid_run(run)
        below = run.processes()
        assert len(below) > 8
        if victim == "launcher":
            run.process.kill()
        else:
            run.kill("supervisor")
        assert run.wait_end() != 0
        wait_dead(below)
        wait_for(lambda: not run.processes(), "the end of every process of the run")
        newest = newest_whole(run.folder.checkpoints)
        assert newest is not None
        step = int(newest.name.partition(".")[2])
        assert step >= 1
        before = run.consumed()
    with WholeRun(tmp_path, f"resume={run.folder.root}") as again:
        assert again.wait_end() == 0, again.printed
        loaded = again.events("checkpoint", attempt=2)[0].fields
        assert (loaded["loaded"], loaded["as"]) == (f"checkpoints/{newest.name}", f"1.{step}")
        assert [event.fields["version"] for event in again.events("applied", attempt=2)] == [f"1.{n}" for n in range(step + 1, UPDATES + 1)]
        assert set(before) <= set(again.consumed())
        expect_whole(again, attempts=2)
        assert not again.processes()


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_ends_in_order_and_says_how_to_go_on(tmp_path: Path, sig: signal.Signals):
    with WholeRun(tmp_path, *RUN, "algo.updates=40") as run:  # far from its end when it is stopped
        in_mid_run(run)
        below = run.processes()
        scratch = scratch_folder(load_config(run.folder.config), run.folder)
        run.process.send_signal(sig)
        assert run.wait_end() == 130, run.printed
        assert run.printed.splitlines()[-1] == f"run stopped; go on with: python launch.py resume={run.folder.root}"
        wait_dead(below, within_s=0)
        assert not run.processes() and not run.half_written() and not scratch.exists()
        assert json.loads(end_of(run.folder, 1).read_text())["exit_code"] == 130
        assert run.summary()["updates"] >= 1 and run.folder.report.exists()


@pytest.mark.parametrize(
    "victim", ["controller", "gateway-0", *(pytest.param(name, marks=pytest.mark.rare) for name in ("runner-0", "cell-1")), "cell-0"]
)
def test_a_run_outlives_the_kill_of_any_of_its_processes(tmp_path: Path, victim: str):
    with WholeRun(tmp_path, *RUN) as run:
        in_mid_run(run)
        pid = run.kill(victim)
        assert run.wait_end() == 0, run.printed
        ends = [event.fields["process"] for event in run.events("process_ended") if event.fields.get("code") == -signal.SIGKILL]
        assert ends == [victim], f"{victim} had pid {pid}"
        expect_whole(run)
        assert not run.processes()


def test_a_satellite_killed_in_mid_batch_is_voided_and_the_update_is_whole(tmp_path: Path):
    # Training takes half a second per micro-batch here, so that the satellite dies with a lease.
    pace = ("trainer.timed_tokens_per_s=1000", "scheduler.lead_factor=0", "scheduler.max_staleness=0")
    with WholeRun(tmp_path, *RUN, *pace, "cluster.runner_capacity=12") as run:
        victim = run.wait_event("micro_batch_leased", lambda event: event.fields["cell"] != "cell-0").fields["cell"]
        run.kill(victim)
        assert run.wait_end() == 0, run.printed
        (lost,) = run.events("cell_lost")
        assert (lost.fields["cell"], lost.fields["reason"]) == (victim, "killed by signal 9")
        assert lost.fields["voided"] >= 1
        for applied in run.events("applied"):
            ready = [event.fields for event in run.events("group_ready") if event.fields["update"] == applied.fields["update"]]
            ids = {id for fields in ready for id in fields["micro_batches"]}
            assert applied.fields["micro_batches"] == len(ids)
            assert applied.fields["executions"] == GROUPS * SIZE
        expect_whole(run)


def test_two_runs_at_once_on_one_machine_stay_apart(tmp_path: Path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with WholeRun(tmp_path / "a", *RUN) as one, WholeRun(tmp_path / "b", *RUN, "seed=1") as other:
        assert (one.wait_end(), other.wait_end()) == (0, 0), one.printed + other.printed
        for run in (one, other):
            expect_whole(run)
            assert not run.processes()


def test_a_finished_run_that_is_resumed_says_so_and_starts_nothing(tmp_path: Path):
    with WholeRun(tmp_path, *REHEARSAL, "algo.updates=1") as run:
        assert run.wait_end() == 0, run.printed
    consumed = run.consumed()
    with WholeRun(tmp_path, f"resume={run.folder.root}") as again:
        assert again.wait_end() == 0, again.printed
        assert "nothing left to do" in again.printed and "report.html" in again.printed
        assert again.consumed() == consumed and not (run.folder.attempts / "2").exists()
    with WholeRun(tmp_path, f"resume={run.folder.root}", "algo.updates=2") as more:
        assert more.wait_end() == 0, more.printed
        assert [event.fields["update"] for event in more.events("applied", attempt=2)] == [1]


@pytest.mark.parametrize(("resume", "why"), [("missing", "there is nothing of that name"), (".", "no run lies below it")])
def test_resuming_what_is_no_run_names_field_value_and_remedy(tmp_path: Path, resume: str, why: str):
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "launch.py"), f"resume={resume}"],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=dict(os.environ),
    )
    assert done.returncode == 2
    assert done.stderr.strip() == f"resume='{resume}': name a run folder, one that holds config.yaml; {why}"
    assert not list(tmp_path.iterdir())
