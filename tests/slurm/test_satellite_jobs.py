"""Satellites that nobody submits by hand: launch.satellites, asked for by the run's own first node or with the launch; a machine without SLURM;
a job written by hand."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gyre_hpc.observability.job_record import SATELLITE, jobs_of
from gyre_hpc.shell.node_map import read_start
from tests.fakes.live_run import REPOSITORY, wait_for
from tests.slurm.cluster import Cluster, JobState
from tests.slurm.runs import SlurmRun
from tests.slurm.test_satellites import ONE_NODE, expect_lost, gyre, wait_in_mid_batch

pytestmark = [pytest.mark.timeout(900, method="signal"), pytest.mark.rare]
UPDATES = 4
ASKED = ("launch.satellites=2", "launch.satellite_partition=low")


def satellites(run: SlurmRun) -> dict[int, JobState]:
    """Jobs that were asked for, oldest first."""
    return {run.cluster.adopt(int(record.job)): run.cluster.state(int(record.job)) for record in jobs_of(run.folder, SATELLITE)}


def living(run: SlurmRun) -> list[int]:
    return [job for job, state in satellites(run).items() if state in (JobState.running, JobState.pending)]


@pytest.fixture
def closed_low(cluster: Cluster) -> Iterator[None]:
    """Partition `low` takes no jobs; opened again by the test, or afterwards."""
    cluster.run("scontrol", "update", "PartitionName=low", "State=INACTIVE")
    try:
        yield
    finally:
        cluster.run("scontrol", "update", "PartitionName=low", "State=UP")


@pytest.mark.usefixtures("closed_low")
def test_a_run_asks_for_satellites_bears_refusals_keeps_their_number_and_calls_back_those_that_wait(cluster: Cluster, shared_folder: Path):
    run = SlurmRun(cluster, shared_folder, *ONE_NODE, *ASKED, "algo.updates=8")
    run.wait_event("satellites_refused")
    (refused,) = run.events("satellites_refused")
    assert (refused.fields["refusals"], refused.fields["wait_s"]) == (1, 60.0) and "inactive" in refused.fields["reason"]
    assert [event.fields["what"] for event in run.events("alarm")] == ["satellites refused"] and not satellites(run)
    told = gyre(cluster, "status", str(run.folder.root)).stdout
    assert "satellites were refused" in told and "inactive" in told, told

    cluster.run("scontrol", "update", "PartitionName=low", "State=UP")
    run.wait_until(lambda: len(living(run)) == 2, "two satellites", 150.0)
    first, second = living(run)
    run.wait_until(lambda: len(run.events("node_joined")) == 2, "two that joined")
    # Others want a node now, so that the one that follows has to wait.
    taken = cluster.fields(first)["NodeList"]
    cluster.submit("sleep 600", "-p", "high", "-w", taken, "--exclusive", folder=run.root)
    free = {node for node in cluster.nodes if cluster.node_state(node) == "idle"}
    for node in free:
        cluster.submit("sleep 600", "-p", "high", "-w", node, "--exclusive", folder=run.root)
    run.wait_until(lambda: satellites(run)[first] is JobState.pending, "the one that was preempted, in the queue again")
    assert living(run) == [first, second], "it is one of the two"

    cluster.cancel(second)
    run.wait_until(lambda: len(living(run)) == 2 and second not in living(run), "another in the place of the cancelled one", 150.0)
    assert run.wait_over(400.0) is JobState.completed
    run.expect_whole(attempts=1, updates=8)
    wait_for(lambda: not living(run), "the end of the satellites", 90.0, every_s=0.5)


def test_where_nodes_may_not_submit_satellites_are_submitted_with_the_run_and_begin_after_it(cluster: Cluster, shared_folder: Path):
    run = SlurmRun(
        cluster,
        shared_folder,
        *ONE_NODE,
        *ASKED,
        f"algo.updates={UPDATES}",
        "launch.satellites_at=launch",
        "+cluster.slurm.options.begin=now+20",
    )
    jobs = satellites(run)
    assert list(jobs.values()) == [JobState.pending] * 2 and f"satellites: {', '.join(map(str, jobs))}" in run.printed
    assert {cluster.fields(job)["Dependency"] for job in jobs} == {f"after:{run.job}(unfulfilled)"}
    run.wait_until(lambda: len(run.events("node_joined")) == 2, "two that joined")
    assert run.wait_over(300.0) is JobState.completed
    run.expect_whole(attempts=1, updates=UPDATES)
    wait_for(lambda: set(satellites(run).values()) == {JobState.completed}, "the end of the satellites", 60.0, every_s=0.5)
    assert list(satellites(run)) == list(jobs), "none was asked for anew"


def test_a_machine_without_slurm_joins_until_ctrl_c_and_leaves_nothing(cluster: Cluster, shared_folder: Path):
    run = SlurmRun(cluster, shared_folder, *ONE_NODE, f"algo.updates={UPDATES}")
    run.wait_event("applied")
    here = str(ip_network(f"{urlsplit(read_start(run.folder.start(1)).url).hostname}/24", strict=False)[1])
    before = run.processes()
    joined = subprocess.Popen(
        [sys.executable, "-m", "gyre_hpc.cli", "satellite", "--run", str(run.folder.root), "--here", "--cells", "2", "--interface", here],
        cwd=REPOSITORY, env={name: value for name, value in os.environ.items() if not name.startswith("SLURM")}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    cell = wait_in_mid_batch(run)
    ours = run.processes() - before
    assert len(ours) > 3
    joined.send_signal(signal.SIGINT)
    said = joined.communicate(timeout=60)[0]
    assert joined.returncode == 0 and "joins" in said
    expect_lost(run, cell)
    assert not run.processes() & ours
    assert run.wait_over(300.0) is JobState.completed
    run.expect_whole(attempts=1, updates=UPDATES)


def test_a_satellite_job_written_by_hand_joins_is_preempted_and_joins_again(cluster: Cluster, shared_folder: Path):
    run = SlurmRun(cluster, shared_folder, *ONE_NODE, f"algo.updates={UPDATES}")
    run.wait_event("applied")
    path = f"--export=ALL,PATH={Path(sys.executable).parent}:{os.environ['PATH']}"
    script = REPOSITORY / "slurm" / "satellite.sbatch"
    options = ("--parsable", "--nodes=1", "--partition=low", "--exclusive", path, "--output=%j.out")
    job = cluster.adopt(int(cluster.run("sbatch", *options, script, run.folder.root, "1", cwd=run.root)))
    cell = wait_in_mid_batch(run)
    node = cluster.fields(job)["NodeList"]
    cluster.wait_for(cluster.submit("sleep 2", "-phigh", "-w", node, "--exclusive", folder=run.root), JobState.completed, within_s=60.0)
    expect_lost(run, cell)
    cluster.kick(job)
    wait_in_mid_batch(run, cell)
    assert run.wait_over(300.0) is JobState.completed
    run.expect_whole(attempts=1, updates=UPDATES)
    assert cluster.wait_for(job, JobState.completed)


def test_a_satellite_job_that_loses_its_two_nodes_at_once_joins_again_with_both(cluster: Cluster, shared_folder: Path):
    run = SlurmRun(cluster, shared_folder, *ONE_NODE, f"algo.updates={UPDATES}")
    run.wait_event("applied")
    done = gyre(cluster, "satellite", "--run", str(run.folder.root), "--partition", "low", "--nodes", "2")
    assert done.returncode == 0, done.stderr
    (job,) = satellites(run)
    run.wait_until(lambda: len(run.events("node_joined")) == 2, "two nodes that joined")
    wait_in_mid_batch(run)
    nodes = cluster.fields(job)["NodeList"]
    urgent = cluster.submit("sleep 2", "-phigh", "-N2", "-w", nodes, "--exclusive", folder=run.root)
    cluster.wait_for(urgent, JobState.completed, within_s=60.0)
    for event in run.events("node_joined"):
        expect_lost(run, event.fields["cells"][0])
    cluster.kick(job)
    run.wait_until(lambda: len(run.events("node_joined")) == 4, "both again")
    assert run.wait_over(300.0) is JobState.completed
    run.expect_whole(attempts=1, updates=UPDATES)
