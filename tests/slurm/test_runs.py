"""launch.py on the login node of a real SLURM: submits one job that makes the run, says what it would submit, refuses what cannot be."""

import json
import os
import sys
from pathlib import Path

import msgspec
import pytest

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.protocol.node_map import NodeMap
from tests.fakes.live_run import REPOSITORY
from tests.slurm.cluster import Cluster, JobState
from tests.slurm.runs import OVER, TIMED, UPDATES, SlurmRun, launch, make_ours

pytestmark = pytest.mark.timeout(300, method="signal")


def test_a_run_is_one_job_over_two_nodes_and_ends_with_success(cluster: Cluster, shared_folder: Path):
    run = SlurmRun(cluster, shared_folder)
    for said in (f"run: {run.folder.root}", f"job: {run.job}", "gyre status", "gyre logs", "gyre stop"):
        assert said in run.printed
    assert run.wait_over() is JobState.completed, run.out()
    run.expect_whole(attempts=1)
    assert {event.process for event in run.events("execution_began")} - {"controller"} == {"runner-0", "runner-1"}
    hosts = run.events("job_started")[0].fields["hosts"]
    assert len(set(hosts)) == 2 and all(host in cluster.nodes for host in hosts)


def test_only_their_user_reads_a_run_folder_and_its_token(cluster: Cluster, shared_folder: Path):
    run = SlurmRun(cluster, shared_folder)
    assert run.folder.root.stat().st_mode & 0o777 == 0o700
    assert run.folder.token.stat().st_mode & 0o777 == 0o600


def test_submitting_leaves_no_process(cluster: Cluster, shared_folder: Path):
    run = SlurmRun(cluster, shared_folder, "+cluster.slurm.options.begin=now+1hour")
    assert run.state is JobState.pending and not run.processes(), "a process of the submission is left"


def test_submitting_loads_no_torch(cluster: Cluster, shared_folder: Path):
    probe = shared_folder / "probe.py"
    program = Path(__file__).parents[2] / "launch.py"
    lines = (
        "import atexit, runpy, sys",
        "atexit.register(lambda: print('torch' if 'torch' in sys.modules else 'light'))",
        f"sys.argv = {[str(program), *TIMED, 'launch.dry_run=true']!r}",
        f"runpy.run_path({str(program)!r}, run_name='__main__')",
    )
    probe.write_text("\n".join(lines))
    assert cluster.run(sys.executable, probe, cwd=shared_folder).splitlines()[-1] == "light"


def test_a_dry_run_prints_the_script_and_the_cells_and_leaves_nothing(cluster: Cluster, shared_folder: Path):
    before = cluster.squeue("-o", "%i")
    done = launch(
        cluster, shared_folder, *TIMED, "launch.dry_run=true", f"paths.run={shared_folder / 'run'}",
        "+cluster.slurm.options.mail-user=me@site", "+cluster.slurm.options.exclusive=''",
        "cluster.slurm.setup=[module load cuda]", "cluster.slurm.srun_options=['--mpi=none']",
        "cluster.slurm.partition=low",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for line in (
        "#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=1", "#SBATCH --mail-user=me@site", "#SBATCH --exclusive", "#SBATCH --partition=low",
        "#SBATCH --signal=USR2@120", "#SBATCH --requeue", "#SBATCH --no-kill", "module load cuda",
    ):  # fmt: skip
        assert line in done.stdout.splitlines(), done.stdout
    assert "--mpi=none" in done.stdout and "cell-1" in done.stdout
    assert not (shared_folder / "run").exists() and set(cluster.squeue("-o", "%i")) <= set(before)


def test_a_dry_run_shows_the_cells_that_the_run_takes_and_the_nodes_without_one(cluster: Cluster, shared_folder: Path):
    spread = launch(cluster, shared_folder, *TIMED, "launch.dry_run=true", "cluster.slurm.nodes=4", "cluster.cells=6")
    rows = [line.split() for line in spread.stdout.splitlines() if line.startswith("cell-")]
    assert [row[2] for row in rows] == ["node-0", "node-0", "node-1", "node-1", "node-2", "node-3"], spread.stderr
    few = launch(cluster, shared_folder, *TIMED, "launch.dry_run=true", "cluster.slurm.nodes=4", "cluster.cells=2")
    assert "without a cell, for harnesses only: node-[2-3] (cluster.cells=2 of" in few.stdout.splitlines()[-1], few.stderr


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("cluster.slurm.partition=nosuch", "cluster.slurm.partition='nosuch': SLURM refused the job: invalid partition specified: nosuch"),
        pytest.param("cluster.slurm.nodes=9", "nodes=9, ", marks=pytest.mark.rare),  # taken, and kept for ever
        pytest.param("cluster.slurm.options={bogus: 3}", "unrecognized option '--bogus=3'", marks=pytest.mark.rare),
    ],
)
def test_what_slurm_refuses_is_one_line_in_its_words_and_leaves_nothing(cluster: Cluster, shared_folder: Path, override: str, told: str):
    before = cluster.squeue("-o", "%i")
    done = launch(cluster, shared_folder, *TIMED, override)
    assert done.returncode == 2 and told in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
    assert not (shared_folder / "outputs").exists() and set(cluster.squeue("-o", "%i")) <= set(before)


def test_a_local_run_on_a_login_node_asks_to_be_meant(cluster: Cluster, shared_folder: Path):
    done = launch(cluster, shared_folder, "+experiment=rehearsal")
    assert done.returncode == 2 and "launch.here=true" in done.stderr, done.stderr
    assert not (shared_folder / "outputs").exists()


def test_the_map_of_nodes_has_the_core_on_the_first_one(cluster: Cluster, shared_folder: Path):
    run = SlurmRun(cluster, shared_folder, "cluster.cells=3")
    run.wait_event("job_started")
    run.wait_until(run.folder.node_map(1).exists, "the map of nodes")
    nodes = msgspec.json.decode(run.folder.node_map(1).read_bytes(), type=NodeMap)
    assert nodes.cells[0].supervisors == ("supervisor-0",)
    assert sorted(len(nodes.cells_on(name)) for name in ("supervisor-0", "supervisor-1")) == [1, 2]


@pytest.mark.rare
def test_a_job_written_by_hand_makes_the_run(cluster: Cluster, shared_folder: Path):
    make_ours(shared_folder)
    folder = RunFolder(shared_folder / "run")
    path = f"PATH={Path(sys.executable).parent}:{os.environ['PATH']}"
    options = ("--parsable", "--nodes=2", "--output=%j.out", f"--export=ALL,{path}")
    job = cluster.adopt(
        int(
            cluster.run(
                "sbatch", *options, REPOSITORY / "slurm" / "run.sbatch", folder.root, *TIMED, f"paths.cache={shared_folder / 'cache'}",
                f"paths.scratch={shared_folder / 's'}", cwd=shared_folder,
            )
        )
    )  # fmt: skip
    assert cluster.wait_for(job, *OVER, within_s=150) is JobState.completed, (shared_folder / f"{job}.out").read_text()
    summary = json.loads(folder.summary.read_text())
    assert (summary["updates"], summary["exit_code"], summary["attempts"]) == (UPDATES, 0, 1)
    assert (folder.jobs / f"{job}.json").exists()


def test_a_reader_that_is_gone_does_not_keep_a_run_from_being_submitted(cluster: Cluster, shared_folder: Path):
    read, write = os.pipe()
    os.close(read)
    with open(write, "wb") as nobody:
        done = launch(
            cluster, shared_folder, *TIMED, "+cluster.slurm.options.begin=now+1hour", f"paths.run={shared_folder / 'run'}", stdout=nobody
        )
    assert (done.returncode, done.stderr) == (0, "")
    (record,) = (shared_folder / "run" / "jobs").glob("*.json")
    assert cluster.state(cluster.adopt(int(record.stem))) is JobState.pending
