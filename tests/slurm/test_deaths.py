"""Every way an allocation ends before its run does: the run goes on in the next one, and nothing is lost, sampled or trained twice.

The first tests of this file are CI's (marked nothing); the rest, `rare`, run by `make test-slurm`.
"""

import os
import signal
from pathlib import Path

import pytest

from gyre_hpc.observability.process_tree import signal_quietly
from tests.fakes.live_run import wait_dead, wait_for
from tests.slurm.cluster import Cluster, JobState
from tests.slurm.runs import UPDATES, SlurmRun, launch

pytestmark = pytest.mark.timeout(400, method="signal")
rare = pytest.mark.rare
TURNING_OFF_S = 90.0
"""SLURM gives a node up after half a minute, and only then puts a job back."""


def mid_run(cluster: Cluster, folder: Path, *overrides: str) -> SlurmRun:
    run = SlurmRun(cluster, folder, *overrides)
    run.in_mid_run()
    return run


def went(run: SlurmRun) -> list[str]:
    """What each attempt said follows it."""
    return [str(event.fields["next"]) for event in run.events("job_ended")]


def start_again(run: SlurmRun, within_s: float = 30.0) -> None:
    """The job was put back, and starts without its two minutes. After a lost node it may have started by itself."""
    seen: list[JobState] = []

    def is_back() -> bool:
        fields = run.cluster.fields(run.job)
        seen.append(JobState(fields["JobState"]))
        return fields["Restarts"] != "0" and seen[-1] is not JobState.completing

    wait_for(is_back, f"job {run.job} put back", within_s, every_s=0.2)
    if seen[-1] is JobState.pending:
        run.cluster.start_soon(run.job)


def finish(run: SlurmRun, attempts: int, updates: int = UPDATES, within_s: float = 180.0) -> None:
    assert run.wait_over(within_s) is JobState.completed, run.out()
    run.expect_whole(attempts, updates)


def preempt(run: SlurmRun) -> None:
    """Better jobs want both nodes, for a moment."""
    nodes = ",".join(run.events("job_started")[-1].fields["hosts"])
    run.cluster.submit("sleep 1", "-p", "high", "-N2", "-w", nodes, "--exclusive", folder=run.root)


def test_a_job_that_is_told_to_save_puts_itself_back_and_goes_on(cluster: Cluster, shared_folder: Path):
    run = mid_run(cluster, shared_folder)
    cluster.cancel(run.job, "--signal=USR2")
    start_again(run)
    finish(run, attempts=2)
    assert went(run) == ["requeue", "end"] and run.end(1)["exit_code"] == 130
    assert [event.fields["signal"] for event in run.events("job_ended")] == ["SIGUSR2", ""]


@rare
def test_a_job_that_is_told_to_save_makes_no_update_again_that_was_in_no_checkpoint(cluster: Cluster, shared_folder: Path):
    run = mid_run(cluster, shared_folder, "checkpoint.before_publish=false", "checkpoint.every=100")
    cluster.cancel(run.job, "--signal=USR2")
    start_again(run)
    finish(run, attempts=2)
    made = [event.fields["update"] for event in run.events("applied")]
    assert made == list(range(UPDATES)) and run.events("applied", attempt=1) and run.events("applied", attempt=2)


@rare
def test_a_job_that_a_better_one_displaces_after_its_grace_time_goes_on(cluster: Cluster, shared_folder: Path):
    run = mid_run(cluster, shared_folder, "cluster.slurm.partition=low")
    preempt(run)
    start_again(run)
    finish(run, attempts=2)
    assert went(run) == ["requeue", "end"]


def test_a_run_whose_first_node_loses_power_is_put_back_by_a_node_that_lives(cluster: Cluster, shared_folder: Path):
    run = mid_run(cluster, shared_folder)
    first, second = run.first_host, run.last_host
    cluster.node_off(first)
    start_again(run, TURNING_OFF_S)
    finish(run, attempts=2)
    assert first not in run.events("job_started")[1].fields["hosts"]
    assert "first node is lost" in run.out(1), f"{second} put the job back"


def test_a_cancelled_job_leaves_nothing_and_the_run_goes_on_by_hand(cluster: Cluster, shared_folder: Path):
    cluster.kill_late()
    run = mid_run(cluster, shared_folder)
    cluster.cancel(run.job)
    assert run.wait_over() is JobState.cancelled
    assert went(run) == ["end"] and run.events("job_ended")[0].fields["reason"] == "the job was cancelled"
    before = set(run.folder.jobs.glob("*.json"))
    done = launch(cluster, shared_folder, f"resume={run.folder.root}")
    assert done.returncode == 0, done.stderr
    (record,) = set(run.folder.jobs.glob("*.json")) - before
    run.job = cluster.adopt(int(record.stem))
    finish(run, attempts=2)


@rare
def test_a_job_that_somebody_puts_back_goes_on(cluster: Cluster, shared_folder: Path):
    run = mid_run(cluster, shared_folder)
    cluster.run("scontrol", "requeue", str(run.job))
    start_again(run)
    finish(run, attempts=2)
    assert went(run) in (["leave", "end"], ["end"]), "SLURM may kill it before it says anything"


@rare
@pytest.mark.parametrize(("partition", "is_told"), [("low0", True), ("low", False), ("low0", False)])
def test_a_displaced_job_goes_on_however_it_is_told(cluster: Cluster, shared_folder: Path, partition: str, is_told: bool):
    if not is_told:
        cluster.send_user_signal(False)
    run = mid_run(cluster, shared_folder, f"cluster.slurm.partition={partition}")
    preempt(run)
    start_again(run)
    finish(run, attempts=2)
    assert went(run)[-1] == "end" and set(went(run)[:-1]) <= {"requeue", "leave"}


@rare
def test_a_run_goes_on_without_a_node_that_is_not_the_first(cluster: Cluster, shared_folder: Path):
    run = mid_run(cluster, shared_folder)
    cluster.node_off(run.last_host)
    finish(run, attempts=1)


@rare
def test_a_first_node_that_is_cut_off_ends_by_itself_when_the_job_runs_elsewhere(cluster: Cluster, shared_folder: Path):
    updates = 60  # it would come to its end alone before SLURM gives its node up
    run = mid_run(cluster, shared_folder, f"algo.updates={updates}")
    first, before = run.first_host, run.processes()
    cluster.cut(first)
    cluster.run("scontrol", "requeue", str(run.job))
    # Else the node would go on alone, and might make all updates, until SLURM gives it up.
    cluster.run("scontrol", "update", f"NodeName={first}", "State=DOWN", "Reason=test")
    start_again(run, TURNING_OFF_S)
    run.wait_until((run.folder.attempts / "2").exists, "attempt 2")
    wait_dead(before, within_s=30)
    cluster.mend(first)
    cluster.run("scontrol", "update", f"NodeName={first}", "State=RESUME")
    finish(run, 2, updates)


@rare
def test_without_a_chain_nothing_follows(cluster: Cluster, shared_folder: Path):
    run = mid_run(cluster, shared_folder, "launch.chain=none")
    cluster.cancel(run.job, "--signal=USR2")
    assert run.wait_over() is JobState.failed
    assert went(run) == ["end"] and run.events("job_ended")[0].fields["reason"] == "launch.chain=none"


@rare
def test_a_successor_waits_from_the_start_takes_over_and_is_cancelled_at_a_good_end(cluster: Cluster, shared_folder: Path):
    run = mid_run(cluster, shared_folder, "launch.chain=successor")
    successor = adopt_newest(run)
    assert successor != run.job and cluster.state(successor) is JobState.pending
    assert cluster.fields(successor)["Dependency"].startswith(f"afterany:{run.job}")
    cluster.cancel(run.job, "--signal=USR2")
    first, run.job = run.job, successor
    run.wait_event("job_started", attempt=2)
    assert cluster.state(first) is JobState.failed
    wait_for(lambda: adopt_newest(run) != successor, "a successor of the successor", every_s=0.2)
    last = adopt_newest(run)
    finish(run, attempts=2)
    assert went(run) == ["leave", "end"] and cluster.state(last) is JobState.cancelled


UNTOLD = ("cluster.slurm.time_min=1", "cluster.slurm.signal_s=30", "+cluster.slurm.options={signal: CONT@10}")
"""No process minds SIGCONT: the time limit comes as a surprise, a minute or one and a half after the start."""
LIMIT_S = 150.0
LONG, LONG_S = 100, 600.0
"""Updates, more than a job of a minute makes on the fastest machine; all of them on a loaded one."""


def raise_limit(run: SlurmRun) -> None:
    run.cluster.run("scontrol", "update", f"JobId={run.job}", "TimeLimit=20")


@rare
@pytest.mark.timeout(900, method="signal")
def test_a_time_limit_that_comes_untold_puts_the_job_back(cluster: Cluster, shared_folder: Path):
    run = mid_run(cluster, shared_folder, *UNTOLD, f"algo.updates={LONG}")
    start_again(run, LIMIT_S)
    run.wait_event("job_started", attempt=2)
    raise_limit(run)
    (told,) = run.events("job_told", attempt=1)
    assert (told.fields["signal"], told.fields["fate"], told.fields["ordered"]) == ("SIGTERM", "timed_out", "requeue")
    finish(run, 2, LONG, LONG_S)
    assert went(run)[-1] == "end" and set(went(run)[:-1]) <= {"requeue"}, "SLURM may kill it before it says anything"


@rare
@pytest.mark.timeout(900, method="signal")
def test_a_time_limit_that_comes_untold_loses_no_successor(cluster: Cluster, shared_folder: Path):
    run = mid_run(cluster, shared_folder, *UNTOLD, f"algo.updates={LONG}", "launch.chain=successor")
    first, run.job = run.job, adopt_newest(run)
    assert cluster.wait_for(first, JobState.timeout, within_s=LIMIT_S) and run.job != first
    run.wait_event("job_started", attempt=2)
    raise_limit(run)
    wait_for(lambda: adopt_newest(run) != run.job, "a successor of the successor", every_s=0.2)
    finish(run, 2, LONG, LONG_S)


@rare
def test_a_stop_that_is_not_done_at_the_time_limit_ends_no_chain_and_a_cancel_afterwards_does(cluster: Cluster, shared_folder: Path):
    run = mid_run(cluster, shared_folder, *UNTOLD, "algo.updates=300")
    supervisor = pid_of(run, b"gyre_hpc.processes.supervisor", b"--attempt")
    os.kill(supervisor, signal.SIGSTOP)
    cluster.cancel(run.job, "--signal=USR2")
    hold_until_put_back(run, supervisor)
    start_again(run)
    run.wait_event("job_started", attempt=2)
    raise_limit(run)
    run.in_mid_run(attempt=2)
    told = [(event.fields["signal"], event.fields["fate"], event.fields["ordered"]) for event in run.events("job_told", attempt=1)]
    assert told == [("SIGUSR2", "running", ""), ("SIGTERM", "timed_out", "requeue")]
    assert not run.events("job_ended", attempt=1), "it had no time to say anything"
    cluster.cancel(run.job)
    assert run.wait_over() is JobState.cancelled and cluster.fields(run.job)["Restarts"] == "1"
    assert [event.fields["fate"] for event in run.events("job_told", attempt=2)] == ["cancelled"] and not run.events("token_fault")
    assert set(went(run)) <= {"end"}, "SLURM may kill it before it says anything"


@rare
def test_a_persons_stop_that_is_not_done_at_the_time_limit_is_undone_by_no_start_but_a_persons(cluster: Cluster, shared_folder: Path):
    # On one node: another one would take the stopped supervisor for a lost one before the time limit comes.
    run = mid_run(cluster, shared_folder, *UNTOLD, f"algo.updates={LONG}", "cluster.slurm.nodes=1")
    supervisor, controller = pid_of(run, b"gyre_hpc.processes.supervisor", b"--attempt"), pid_of(run, b"gyre_hpc.processes.controller")
    os.kill(controller, signal.SIGSTOP)  # the stop waits for its last save
    run.folder.commands.mkdir(exist_ok=True)
    run.folder.command("1-a").write_text('{"kind": "stop", "reason": "enough"}')
    wait_for(run.folder.answer("1-a").exists, "the answer to the stop")
    hold_until_put_back(run, supervisor, controller)
    start_again(run)
    assert run.wait_over() is JobState.failed and "a person stopped attempt 1" in run.out()
    assert [event.fields["ordered"] for event in run.events("job_told")] == ["requeue"], "before anybody could know of the stop"
    assert went(run) == ["end"] and not (run.folder.attempts / "2").exists()
    again = launch(cluster, shared_folder, f"resume={run.folder.root}", "cluster.slurm.time_min=20", f"algo.updates={UPDATES}")
    assert again.returncode == 0, again.stderr
    run.job = adopt_newest(run)
    assert run.wait_over() is JobState.completed, run.out()
    assert run.summary()["updates"] >= UPDATES and run.summary()["attempts"] == 2 and not run.events("token_fault")


def hold_until_put_back(run: SlurmRun, *pids: int) -> None:
    """Keep processes standing until the time limit has put their job back: SLURM lets them go on with each of its signals."""

    def is_put_back() -> bool:
        for pid in pids:
            signal_quietly(pid, signal.SIGSTOP)
        return run.cluster.fields(run.job)["Restarts"] != "0"

    wait_for(is_put_back, "the job put back", LIMIT_S, every_s=0.05)


def pid_of(run: SlurmRun, *words: bytes) -> int:
    """Of the one process of the run that has these words in its command line."""
    found = [pid for pid in run.processes() if set(words) <= set(words_of(pid))]
    assert len(found) == 1
    return found[0]


def words_of(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:  # an execution's, and over
        return []


def adopt_newest(run: SlurmRun) -> int:
    return run.cluster.adopt(max(int(path.stem) for path in run.folder.jobs.glob("*.json")))
