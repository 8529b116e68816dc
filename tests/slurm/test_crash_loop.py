"""A run that dies again and again before it brought anything is not put back for ever; somebody's own start gives it new trust."""

import os
import signal
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster, JobState
from tests.slurm.runs import SlurmRun, launch

pytestmark = [pytest.mark.timeout(400, method="signal"), pytest.mark.rare]
NO_TOKEN = "engine.time_scale=1000000"
"""The first token takes days: whenever such a run is killed, it brought nothing."""
REASON = "2 attempts in a row made no update and no new token"


def kill_first_supervisor(run: SlurmRun, attempt: int) -> None:
    run.wait_until(run.folder.start(attempt).exists, f"supervisor-0 of attempt {attempt}")
    for pid in run.processes():
        try:
            argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:  # gone
            continue
        if b"gyre_hpc.processes.supervisor" in argv and b"--attempt" in argv:
            os.kill(pid, signal.SIGKILL)


def test_a_run_that_dies_twice_without_bringing_anything_is_not_put_back_again(cluster: Cluster, shared_folder: Path):
    run = SlurmRun(cluster, shared_folder, NO_TOKEN)
    kill_first_supervisor(run, 1)
    cluster.kick(run.job)
    kill_first_supervisor(run, 2)
    assert run.wait_over() is JobState.failed
    assert [event.fields["next"] for event in run.events("job_ended")] == ["requeue", "end"]
    assert (run.end(2)["exit_code"], run.end(2)["next"], run.end(2)["why"]) == (137, "end", REASON)
    assert REASON in run.out()
    before = set(run.folder.jobs.glob("*.json"))
    done = launch(cluster, shared_folder, f"resume={run.folder.root}", "engine.time_scale=1", "launch.force=[engine.time_scale]")
    assert done.returncode == 0, done.stderr
    (record,) = set(run.folder.jobs.glob("*.json")) - before
    run.job = cluster.adopt(int(record.stem))
    assert run.wait_over() is JobState.completed, run.out()
    run.expect_whole(attempts=3)


def test_whom_slurm_puts_back_again_and_again_is_not_blamed(cluster: Cluster, shared_folder: Path):
    cluster.kill_late()
    run = SlurmRun(cluster, shared_folder)
    for attempt in (1, 2, 3):
        run.wait_event("job_started", attempt=attempt)
        cluster.run("scontrol", "requeue", str(run.job))
        cluster.kick(run.job)
    assert run.wait_over() is JobState.completed, run.out()
    run.expect_whole(attempts=4)
    assert [event.fields["fate"] for event in run.events("job_told")] == ["requeued"] * 3
