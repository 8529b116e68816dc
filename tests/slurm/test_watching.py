"""Runs in the queue and in allocations, watched and ended from the login node."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gyre_hpc.report.watch.squeue import FRESH_S
from tests.fakes.live_run import REPOSITORY
from tests.slurm.cluster import Cluster, JobState
from tests.slurm.runs import SlurmRun

MANY = ("algo.updates=200",)
"""Far from its end."""


def gyre(run: SlurmRun, *words: str) -> subprocess.CompletedProcess[str]:
    program = "import sys; from gyre_hpc.cli.commands import run; sys.exit(run(sys.argv[1:]))"
    argv = [sys.executable, "-c", program, words[0], str(run.folder.root), *words[1:]]
    return subprocess.run(argv, env=run.cluster.environ, capture_output=True, text=True, timeout=120, cwd=REPOSITORY, check=False)


def watched(run: SlurmRun) -> dict[str, Any]:
    return dict(json.loads(gyre(run, "status", "--json").stdout)["watch"])


def test_a_job_that_waits_is_told_with_its_reason_and_stop_names_what_ends_it(cluster: Cluster, shared_folder: Path):
    run = SlurmRun(cluster, shared_folder, "+cluster.slurm.options={begin: now+1hour}")
    found = watched(run)
    assert (found["state"], found["job"]["id"], found["job"]["reason"]) == ("waiting", str(run.job), "BeginTime")
    assert found["job"]["start"] is not None
    assert f"job {run.job} pending (BeginTime) start: about" in gyre(run, "status").stdout
    stop = gyre(run, "stop")
    assert stop.returncode == 1 and f"scancel {run.job}" in stop.stdout


def test_a_run_in_an_allocation_is_watched_and_stopped_through_its_folder_alone_and_nothing_follows(cluster: Cluster, shared_folder: Path):
    run = SlurmRun(cluster, shared_folder, *MANY, "cluster.slurm.nodes=2")
    run.in_mid_run()
    start = json.loads(run.folder.start(1).read_text())
    run.folder.start(1).write_text(json.dumps({**start, "url": "http://127.0.0.1:9"}))  # as behind a wall
    run.folder.endpoints.unlink()
    run.wait_until(lambda: watched(run)["outlook"] and watched(run)["outlook"]["update_s"], "a measured update")
    found = watched(run)
    assert found["state"] == "running" and found["job"]["id"] == str(run.job)
    assert 0 < found["outlook"]["left_s"] <= 20 * 60 and found["outlook"]["further_jobs"] >= 0
    assert run.last_host != run.first_host
    line = gyre(run, "debug", "--cell", "1", "--py-spy").stdout
    assert line.startswith(f"srun --jobid={run.job} --overlap -N1 -w {run.last_host} py-spy dump --pid ")
    stacks = gyre(run, "debug", "--cell", "1")
    assert stacks.returncode == 0 and "most recent call first" in stacks.stdout, stacks.stdout + stacks.stderr
    stop = gyre(run, "stop", "--wait")
    assert stop.returncode == 0 and "wrote commands/" in stop.stdout and "exit code 130" in stop.stdout, stop.stdout + stop.stderr
    assert run.wait_over() in (JobState.completed, JobState.failed)
    assert run.cluster.fields(run.job)["Restarts"] == "0"
    assert watched(run)["state"] == "over"


def put_back_by_itself(run: SlurmRun) -> None:
    run.cluster.cancel(run.job, "--signal=USR2")


def put_back_by_slurm(run: SlurmRun) -> None:
    run.cluster.run("scontrol", "requeue", str(run.job))


@pytest.mark.rare
@pytest.mark.timeout(300, method="signal")
@pytest.mark.parametrize(
    ("end", "chain", "cause"),
    [
        (put_back_by_itself, "requeue", "told to save (SIGUSR2)"),
        (put_back_by_slurm, "requeue", "SLURM puts the job back (SIGTERM)"),
        (put_back_by_itself, "successor", "told to save (SIGUSR2)"),
    ],
)
def test_a_run_that_goes_on_is_at_no_time_told_as_over(
    cluster: Cluster, shared_folder: Path, end: Callable[[SlurmRun], None], chain: str, cause: str
):
    run = SlurmRun(cluster, shared_folder, *MANY, f"launch.chain={chain}")
    run.in_mid_run()
    for record in run.folder.jobs.glob("*.json"):
        cluster.adopt(int(record.stem))
    assert watched(run)["state"] == "running"  # and squeue will not be asked again for half a minute
    end(run)
    began, seen = time.monotonic(), dict[str, str]()
    while time.monotonic() - began < FRESH_S + 5.0:
        found = watched(run)
        seen[found["state"]] = found["text"]
    for record in run.folder.jobs.glob("*.json"):
        cluster.adopt(int(record.stem))
    assert not set(seen) & {"over", "dead"} and set(seen) & {"requeued", "starting"}, seen
    if run.events("job_ended", attempt=1):  # SLURM may kill it before it says anything
        assert cause in seen.get("requeued", "") + seen.get("starting", ""), seen
