"""What a launch is told to do beside submitting: wait for the run, end after so many allocations, share nodes with another run; and what a job
says that its nodes refuse."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.observability.job_events import of_job
from gyre_hpc.observability.job_record import jobs_of
from tests.fakes.live_run import REPOSITORY, wait_for
from tests.slurm.cluster import Cluster, JobState
from tests.slurm.runs import TIMED, SlurmRun, launch, make_ours
from tests.slurm.test_watching import gyre

pytestmark = pytest.mark.timeout(400, method="signal")
rare = pytest.mark.rare


class Waiting:
    """launch.py with launch.wait=true, and the job that it submitted."""

    def __init__(self, cluster: Cluster, root: Path, *overrides: str) -> None:
        self.cluster, self.folder = cluster, RunFolder(root / "run")
        places = (f"paths.run={self.folder.root}", f"paths.cache={root / 'cache'}", f"paths.scratch={root / 's'}")
        make_ours(root)
        self.program = subprocess.Popen(
            [sys.executable, str(REPOSITORY / "launch.py"), *TIMED, "launch.wait=true", *overrides, *places],
            cwd=root, env=cluster.environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        wait_for(lambda: jobs_of(self.folder), "a job submitted", 60.0)
        self.job = cluster.adopt(int(jobs_of(self.folder)[0].job))

    def end(self, within_s: float = 120.0) -> tuple[int, str, str]:
        said, errors = self.program.communicate(timeout=within_s)
        return self.program.returncode, said, errors


@rare
def test_who_waits_sees_the_run_and_ends_with_its_exit_code(cluster: Cluster, shared_folder: Path):
    waiting = Waiting(cluster, shared_folder, "algo.updates=3")
    code, said, errors = waiting.end()
    assert (code, errors) == (0, ""), said
    assert "over: attempt 1 is over: all updates made (exit code 0)" in said and said.splitlines()[-1].startswith("rehearsal: "), said
    assert cluster.wait_for(waiting.job, JobState.completed)


@rare
def test_who_waits_and_stops_waiting_leaves_the_run_alone(cluster: Cluster, shared_folder: Path):
    waiting = Waiting(cluster, shared_folder)
    cluster.wait_for(waiting.job, JobState.running)
    wait_for(waiting.folder.status.exists, "a status", 60.0)
    waiting.program.send_signal(signal.SIGINT)
    code, said, errors = waiting.end()
    assert code == 130 and f"the run goes on; see: gyre status {waiting.folder.root}" in errors, said + errors
    assert cluster.wait_for(waiting.job, JobState.completed, within_s=120.0)


@rare
def test_who_waits_for_a_job_that_is_cancelled_in_the_queue_hears_of_it(cluster: Cluster, shared_folder: Path):
    waiting = Waiting(cluster, shared_folder, "cluster.slurm.options={begin: now+1hour}")
    cluster.cancel(waiting.job)
    code, said, _ = waiting.end()
    assert code == 1 and f"job {waiting.job} is gone from the queue before it started anything" in said


@rare
def test_a_chain_ends_after_its_allocations_and_somebodys_own_start_begins_a_new_one(cluster: Cluster, shared_folder: Path):
    run = SlurmRun(cluster, shared_folder, "launch.chain_limit=2")
    for attempt in (1, 2):
        run.in_mid_run(attempt)
        cluster.cancel(run.job, "--signal=USR2")
        if attempt == 1:
            cluster.kick(run.job)
    assert run.wait_over() is JobState.failed
    reason = "launch.chain_limit=2 allocations are used up"
    assert [(event.fields["next"], event.fields["reason"]) for event in run.events("job_ended")] == [
        ("requeue", "told to save (SIGUSR2)"),
        ("end", reason),
    ]
    assert (run.end(2)["exit_code"], run.end(2)["why"]) == (130, reason) and reason in run.out()
    assert launch(cluster, shared_folder, f"resume={run.folder.root}").returncode == 0
    run.job = cluster.adopt(int(jobs_of(run.folder)[-1].job))
    run.in_mid_run(3)
    cluster.cancel(run.job, "--signal=USR2")
    cluster.kick(run.job)
    assert run.wait_over() is JobState.completed, run.out()
    run.expect_whole(attempts=4)


def test_what_a_node_refuses_before_the_start_ends_the_job_and_is_told_with_the_node(cluster: Cluster, shared_folder: Path):
    second, scratch = cluster.nodes[1], shared_folder / "s"
    scratch.mkdir()
    assert cluster.inside(second, "mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(scratch)).returncode == 0
    try:
        nodes = f"{cluster.nodes[0]},{second}"
        run = SlurmRun(cluster, shared_folder, f"cluster.slurm.options={{nodelist: '{nodes}'}}")
        assert run.wait_over() is JobState.failed
    finally:
        cluster.inside(second, "umount", "-l", str(scratch))
    assert cluster.fields(run.job)["ExitCode"] == "2:0" and cluster.fields(run.job)["Restarts"] == "0"
    (ended,) = [event.fields for event in of_job(run.folder, 1) if event.kind == "job_ended"]
    assert (ended["exit_code"], ended["next"]) == (2, "end")
    for said in (str(ended["reason"]), run.out(0), run.out(1)):
        assert f"{second}: " in said and "paths.scratch" in said and "free" in said, said
    told = gyre(run, "status").stdout
    assert f"job {run.job} was refused before attempt 1: paths.scratch=" in told and "(exit code 2)" in told, told
    assert not list(run.folder.attempts.iterdir()) and not list(scratch.iterdir())


@rare
def test_two_runs_of_one_user_on_the_same_nodes_both_end_whole(cluster: Cluster, shared_folder: Path):
    nodes = ",".join(cluster.nodes[:2])
    same = (f"cluster.slurm.options={{nodelist: '{nodes}'}}", "cluster.slurm.cpus_per_node=1", "network.port_range=18000-18024")
    runs = [SlurmRun(cluster, shared_folder, *same, name=name) for name in ("one", "two")]
    for run in runs:
        run.in_mid_run()
    assert not any(run.events("run_finished") for run in runs), "they were there at the same time"
    for run in runs:
        assert run.wait_over() is JobState.completed, run.out()
        run.expect_whole(attempts=1)
    assert runs[0].first_host == runs[1].first_host and not list((shared_folder / "s").iterdir())


@rare
@pytest.mark.timeout(1200, method="signal")
def test_a_run_that_reaches_its_time_limit_again_and_again_comes_to_its_end(cluster: Cluster, shared_folder: Path):
    """SLURM may send its signal a minute early: of its two minutes an attempt has 45 to 105 s, and the run needs 120."""
    updates, limit = 30, ("cluster.slurm.time_min=2", "cluster.slurm.signal_s=15")
    run = SlurmRun(cluster, shared_folder, f"algo.updates={updates}", "trainer.timed_apply_s=4", *limit)
    attempt = 1
    while run.wait_event("job_ended", attempt, within_s=240).fields["next"] == "requeue":
        cluster.kick(run.job)
        attempt += 1
    assert run.wait_over() is JobState.completed, run.out()
    ended = [(event.fields["signal"], event.fields["next"]) for event in run.events("job_ended")]
    assert len(ended) > 1 and ended == [("SIGUSR2", "requeue")] * (len(ended) - 1) + [("", "end")]
    run.expect_whole(len(ended), updates)
