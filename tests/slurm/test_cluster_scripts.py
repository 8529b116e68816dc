"""The scripts of the test cluster, on a cluster of their own: whatever became of the last script, the next one does its job."""

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.live_run import is_alive, wait_for
from tests.fakes.required import need
from tests.slurm.cluster import SCRIPTS, ask, impossible

NUMBER = "99"
FOLDER = Path("/var/tmp/gyre-slurm-99")
ENVIRON = {name: value for name, value in os.environ.items() if not name.startswith(("GYRE_SLURM_", "SLURM_"))} | {
    "GYRE_SLURM_NUMBER": NUMBER,
    "GYRE_SLURM_NODES": "2",
}
CLIENT = ENVIRON | {"SLURM_CONF": str(FOLDER / "slurm.conf")}


def script(name: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return ask(["bash", SCRIPTS / name, *arguments], ENVIRON | more, within_s=90)


def processes(word: str = "") -> list[int]:
    """Living processes whose command line names this cluster's folder and `word`."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace") if entry.name.isdigit() else ""
        except OSError:
            continue
        if str(FOLDER) in line and word in line and is_alive(int(entry.name)):
            found.append(int(entry.name))
    return found


def traces() -> list[str]:
    """Everything of this cluster that the machine still holds, logs aside."""
    shown = [ask(["ip", *what], ENVIRON).stdout for what in (["netns"], ["-o", "link"])]
    found = [line for lines in shown for line in lines.splitlines() if f"gyre{NUMBER}-" in line]
    files = [str(path) for path in FOLDER.iterdir() if path.name != "log"] if FOLDER.exists() else []
    return found + files + [str(pid) for pid in processes()]


def hosts() -> set[str]:
    """Nodes that answer a job."""
    done = ask(["srun", "-N2", "hostname"], CLIENT)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.fixture
def own() -> Iterator[None]:
    """Nothing of the cluster before the test, and nothing after it; one test at a time on the whole machine."""
    need("slurm", impossible(ENVIRON))
    with open(f"/run/gyre{NUMBER}-tests.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        script("down.sh")
        try:
            yield
        finally:
            script("down.sh")


def test_two_starts_at_once_make_one_cluster_and_a_stop_leaves_nothing(own: None):
    starts = [
        subprocess.Popen(["bash", SCRIPTS / "up.sh"], env=ENVIRON, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [(start.communicate(timeout=90), start.returncode)[1] for start in starts] == [0, 0]
    assert len(processes("slurmctld -D")) == 1 and len(processes("slurmd -D")) == 2 and hosts() == {"n1", "n2"}
    assert script("down.sh").returncode == 0
    assert traces() == [] and (FOLDER / "log" / "slurmctld.log").exists()
    assert script("down.sh").returncode == 0, "and once more does no harm"


def test_a_start_mends_what_was_killed_and_a_job_outlives_the_controller(own: None, tmp_path: Path):
    assert script("up.sh").returncode == 0
    job = ask(["sbatch", "--parsable", "-wn1", "-o/dev/null", "--wrap=sleep 300"], CLIENT, cwd=tmp_path)
    shown = ["scontrol", "-o", "show", "job", job.stdout.strip()]

    def is_running() -> bool:
        return "JobState=RUNNING" in ask(shown, CLIENT).stdout

    wait_for(is_running, "a running job", every_s=0.2)
    for killed in ("slurmctld -D", "munged", "node_init.sh n2"):
        for pid in processes(killed):
            os.kill(pid, signal.SIGKILL)
    assert script("up.sh").returncode == 0
    wait_for(is_running, "the job still running", every_s=0.2)
    assert hosts() == {"n1", "n2"}


@pytest.mark.parametrize("after_s", [0.03, 0.1, 0.2, 0.4])
def test_a_start_that_died_half_way_is_finished_by_the_next_and_undone_by_a_stop(own: None, after_s: float):
    for finish in ("up.sh", "down.sh"):
        half = subprocess.Popen(["bash", SCRIPTS / "up.sh"], env=ENVIRON, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(after_s)  # wherever it is by then: the two scripts below must cope with any place
        half.kill()
        half.wait()
        done = script(finish)
        assert done.returncode == 0, done.stderr
        assert hosts() == {"n1", "n2"} if finish == "up.sh" else traces() == []
        script("down.sh")


def test_a_running_cluster_keeps_its_settings_and_refuses_others(own: None):
    assert script("up.sh").returncode == 0
    same = ask(["bash", SCRIPTS / "up.sh"], {name: value for name, value in ENVIRON.items() if name != "GYRE_SLURM_NODES"})
    assert same.returncode == 0 and "2 nodes" in same.stdout
    other = script("up.sh", GYRE_SLURM_NODES="3")
    assert other.returncode == 1 and "make slurm-down" in other.stderr and hosts() == {"n1", "n2"}


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        ("GYRE_SLURM_NODES", "0"),
        ("GYRE_SLURM_NUMBER", "x"),
        ("GYRE_SLURM_DIR", "some where"),
        ("GYRE_SLURM_USER_SIGNAL", "1"),
        ("GYRE_SLURM_KILL_WAIT_S", "0"),
    ],
)
def test_a_wrong_knob_is_refused_by_name(knob: str, value: str):
    done = script("up.sh", **{knob: value})
    assert done.returncode == 1 and f"{knob}={value}" in done.stderr


def test_a_command_beside_a_cluster_has_one_for_as_long_as_it_takes(own: None):
    done = script("with.sh", "bash", "-c", "srun -N2 hostname; exit 3")
    assert done.returncode == 3 and {"n1", "n2"} <= set(done.stdout.split()), done.stderr
    assert traces() == []
    script("up.sh")
    assert script("with.sh", "true").returncode == 0 and hosts() == {"n1", "n2"}, "one that was up before stays"
