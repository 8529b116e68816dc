"""The cluster itself is what the tests of runs take it for: jobs of any user, lost nodes, a cut network, requeues, preemption."""

import os
from pathlib import Path

from tests.fakes.live_run import wait_for
from tests.slurm.cluster import Cluster, JobState

# A job that says what it is told, in the batch shell itself, and stops at nothing.
LISTENING = """
for signal in USR2 TERM; do trap "echo $signal" $signal; done
echo start ${SLURM_RESTART_COUNT:-0}
while :; do sleep 0.2; done
"""
# The batch shell gets USR2 before its time is up, and when it is preempted.
TELL = "--signal=B:USR2@10"


def output(folder: Path, job: int) -> list[str]:
    path = folder / f"{job}.out"
    return path.read_text().splitlines() if path.exists() else []


def wait_for_line(folder: Path, job: int, line: str, within_s: float = 30.0) -> None:
    wait_for(lambda: line in output(folder, job), f"{line!r} from job {job}", within_s, every_s=0.1)


def reaches(cluster: Cluster, node: str, address: str, port: int) -> bool:
    """Whether a TCP connection from `node` opens within 2 s."""
    return cluster.inside(node, "timeout", "2", "bash", "-c", f"exec 3<>/dev/tcp/{address}/{port}").returncode == 0


def address_of(cluster: Cluster, node: str) -> str:
    return cluster.inside(node, "hostname", "-i").stdout.strip()


def test_every_node_answers_by_its_own_name(cluster: Cluster):
    answers = cluster.run("srun", f"-N{len(cluster.nodes)}", "--immediate=30", "--overcommit", "hostname").split()
    assert len(cluster.nodes) >= 4 and sorted(answers) == sorted(cluster.nodes)


def test_a_job_of_an_unprivileged_user_runs_as_that_user_on_every_node(cluster: Cluster, shared_folder: Path):
    user = "nobody" if os.geteuid() == 0 else ""
    for export in ("ALL", "NONE"):
        # With --export=NONE steps get nothing of the job's surroundings either, not even PATH, unless they ask.
        script = "export PATH=/usr/bin:/bin; srun -N2 --export=ALL sh -c 'echo $(hostname) $(id -un)'"
        job = cluster.submit(script, "-N2", f"--export={export}", folder=shared_folder, user=user)
        assert cluster.wait_for(job, JobState.completed, JobState.failed) is JobState.completed, output(shared_folder, job)
        lines = [line.split() for line in output(shared_folder, job)]
        assert len({node for node, _ in lines}) == 2 and {name for _, name in lines} == {user or os.environ["USER"]}


def test_nodes_have_their_own_processes_and_memory_and_one_file_system(cluster: Cluster, shared_folder: Path):
    first, second = cluster.nodes[:2]
    (shared_folder / "told").write_text("yes")
    assert cluster.inside(first, "cat", str(shared_folder / "told")).stdout == "yes"
    assert "slurmctld" not in cluster.inside(first, "ps", "-eo", "comm").stdout
    cluster.inside(first, "touch", "/dev/shm/gyre-own")
    try:
        assert "gyre-own" not in cluster.inside(second, "ls", "/dev/shm").stdout
    finally:
        cluster.inside(first, "rm", "/dev/shm/gyre-own")


def test_a_node_without_power_is_noticed_and_comes_back_while_its_job_goes_on(cluster: Cluster, shared_folder: Path):
    job = cluster.submit(LISTENING, "-N2", "--no-kill", folder=shared_folder)
    wait_for_line(shared_folder, job, "start 0")
    batch, other = cluster.run("scontrol", "show", "hostnames", cluster.fields(job)["NodeList"]).split()
    cluster.node_off(other)
    assert cluster.inside(other, "true").returncode != 0
    cluster.wait_for_node(other, "down*", "down", within_s=60)
    assert cluster.state(job) is JobState.running and cluster.fields(job)["BatchHost"] == batch
    cluster.node_on(other)
    cluster.wait_for_node(other, "idle", "mixed", "allocated", within_s=30)


def test_a_cut_node_reaches_nobody_and_is_whole_once_mended(cluster: Cluster):
    cut, other = cluster.nodes[1], cluster.nodes[2]
    here, there = address_of(cluster, cut), address_of(cluster, other)
    controller = here.rpartition(".")[0] + ".1"
    ways = ((cut, controller, 6817), (cut, there, 6818), (other, here, 6818))
    assert [reaches(cluster, *way) for way in ways] == [True, True, True]
    cluster.cut(cut)
    assert [reaches(cluster, *way) for way in ways] == [False, False, False]
    assert reaches(cluster, other, controller, 6817), "only one node is cut off"
    assert "slurmd" in cluster.inside(cut, "ps", "-eo", "comm").stdout, "its processes live on"
    cluster.mend(cut)
    wait_for(lambda: all(reaches(cluster, *way) for way in ways), "every way open again", every_s=0.3)


def test_a_requeued_job_starts_at_once_when_it_is_kicked(cluster: Cluster, shared_folder: Path):
    job = cluster.submit(LISTENING, "-N1", folder=shared_folder)
    wait_for_line(shared_folder, job, "start 0")
    cluster.run("scontrol", "requeue", str(job))
    cluster.kick(job)
    wait_for_line(shared_folder, job, "start 1")
    assert cluster.state(job) is JobState.running


def preempted_job(cluster: Cluster, folder: Path, partition: str) -> int:
    """A job whose nodes have been asked for by a better one."""
    job = cluster.submit(LISTENING, TELL, "-p", partition, "-N1", "-w", "n1", "--exclusive", folder=folder)
    wait_for_line(folder, job, "start 0")
    cluster.submit("sleep 60", "-p", "high", "-N1", "-w", "n1", "--exclusive", folder=folder)
    return job


def test_preemption_with_grace_sends_the_jobs_own_signal_first(cluster: Cluster, shared_folder: Path):
    job = preempted_job(cluster, shared_folder, "low")
    wait_for_line(shared_folder, job, "USR2", within_s=10)
    assert cluster.state(job) is JobState.running, "it has its grace time"
    wait_for_line(shared_folder, job, "TERM")
    cluster.wait_for(job, JobState.pending)


def test_preemption_without_grace_sends_both_signals_at_once(cluster: Cluster, shared_folder: Path):
    job = preempted_job(cluster, shared_folder, "low0")
    cluster.wait_for(job, JobState.pending)
    heard = output(shared_folder, job)
    assert "USR2" in heard and "TERM" in heard


def test_a_cluster_that_keeps_the_jobs_signal_to_itself_sends_only_term(cluster: Cluster, shared_folder: Path):
    cluster.send_user_signal(False)
    job = preempted_job(cluster, shared_folder, "low0")
    cluster.wait_for(job, JobState.pending)
    heard = output(shared_folder, job)
    assert "USR2" not in heard and "TERM" in heard
