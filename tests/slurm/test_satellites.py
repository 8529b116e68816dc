"""Satellite jobs on a real SLURM: their cells join a running run, are cancelled, lose their node, are preempted, and cost it nothing."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gyre_hpc.observability.job_record import jobs_of
from tests.fakes.live_run import REPOSITORY, wait_for
from tests.fakes.whole_run import unended
from tests.slurm.cluster import Cluster, JobState
from tests.slurm.runs import SlurmRun

UPDATES = 6
ONE_NODE = (
    "cluster.slurm.nodes=1", "cluster.cells=1", f"algo.updates={UPDATES}", "scheduler=colocate", "trainer.timed_tokens_per_s=100",
    "engine.time_scale=4", "+cluster.slurm.options.exclusive=''", "launch.snapshot=false",
)  # fmt: skip
"""Each job has its nodes alone. All cells train after all generated; seconds of training for each cell and update."""
pytestmark = pytest.mark.timeout(600, method="signal")


def gyre(cluster: Cluster, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gyre_hpc.cli", *argv],
        cwd=REPOSITORY,
        env=cluster.environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def run(cluster: Cluster, shared_folder: Path) -> Iterator[SlurmRun]:
    """On one node, with its core alone."""
    yield SlurmRun(cluster, shared_folder, *ONE_NODE)


def add_satellite(run: SlurmRun, *options: str) -> int:
    """Its job."""
    done = gyre(run.cluster, "satellite", "--run", str(run.folder.root), "--partition", "low", *options)
    assert done.returncode == 0, done.stderr
    newest = jobs_of(run.folder, "satellite")[-1]
    assert (newest.partition, newest.nodes) == ("low", 1) and f"job: {newest.job}" in done.stdout
    return run.cluster.adopt(int(newest.job))


def wait_in_mid_batch(run: SlurmRun, *gone: str) -> str:
    """A cell of a satellite, none of `gone`, holds micro-batches of an update that is not made; its name."""
    found: list[str] = []

    def trains() -> bool:
        trained = {event.fields["cell"] for event in run.events("micro_batch_accumulated")}
        found[:] = trained - {"cell-0", *gone}
        return bool(found)

    run.wait_until(trains, "a satellite that trains")
    return found[0]


def expect_lost(run: SlurmRun, cell: str) -> None:
    run.wait_until(lambda: any(event.fields["cell"] == cell for event in run.events("cell_lost")), f"loss of {cell}")


def host_of(run: SlurmRun, cell: str) -> str:
    return next(str(event.fields["host"]) for event in run.events("node_joined") if cell in event.fields["cells"])


@pytest.mark.rare
def test_satellites_are_cancelled_lose_power_and_are_preempted_and_the_run_loses_nothing(run: SlurmRun, cluster: Cluster):
    run.wait_event("applied")
    first = add_satellite(run)
    cancelled = wait_in_mid_batch(run)
    cluster.cancel(first)
    expect_lost(run, cancelled)

    second = add_satellite(run)
    powered_off = wait_in_mid_batch(run, cancelled)
    cluster.node_off(host_of(run, powered_off))
    expect_lost(run, powered_off)
    cluster.cancel(second)

    third = add_satellite(run)
    preempted = wait_in_mid_batch(run, cancelled, powered_off)
    urgent = cluster.submit("sleep 2", "-phigh", "-w", host_of(run, preempted), "--exclusive", folder=run.root)
    expect_lost(run, preempted)
    cluster.wait_for(urgent, JobState.completed, within_s=60.0)
    cluster.kick(third)
    wait_in_mid_batch(run, cancelled, powered_off, preempted)

    assert run.wait_over(300.0) is JobState.completed
    wait_for(lambda: cluster.state(third) is JobState.completed, "the end of the last satellite", 60.0, every_s=0.5)
    summary = run.summary()
    assert (summary["updates"], summary["exit_code"], summary["attempts"]) == (UPDATES, 0, 1)
    assert (summary["tokens"]["lost"], summary["tokens"]["resampled"]) == (0, 0) and not run.events("token_fault")
    assert len(run.consumed()) == len(set(run.consumed())) == UPDATES * 3 * 4
    assert not unended(run.events())
    assert len(run.events("node_joined")) == 4


def test_what_cannot_be_joined_is_refused_with_the_reason(run: SlurmRun, cluster: Cluster, tmp_path: Path):
    folder = str(run.folder.root)
    shown = gyre(cluster, "satellite", "--run", folder, "--dry-run", "--nodes", "3", "--partition", "low", "--option", "nice=100")
    assert shown.returncode == 0 and all(
        line in shown.stdout for line in ("#SBATCH --nodes=3", "#SBATCH --nice=100", "#SBATCH --requeue", "#SBATCH --partition=low")
    )
    run.wait_event("applied")
    refused = gyre(cluster, "satellite", "--run", folder, "--partition", "nowhere")
    assert refused.returncode == 2 and "nowhere" in refused.stderr
    cluster.cancel(run.job)
    run.wait_over()
    over = gyre(cluster, "satellite", "--run", folder)
    assert over.returncode == 2 and "there is nothing to join" in over.stderr
    assert gyre(cluster, "satellite", "--run", str(tmp_path)).returncode == 2
