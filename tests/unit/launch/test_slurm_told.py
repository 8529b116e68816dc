"""What the first node does at once when its job is told something: put it back at its time limit, never after somebody's cancel."""

import subprocess
import sys
from pathlib import Path

import pytest

from gyre_hpc.clock import unix_s
from gyre_hpc.config.deadlines import ENDING_S, save_within_s
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.launch.folder import Claim
from gyre_hpc.launch.holding import Stop
from gyre_hpc.launch.slurm.chain import Fate
from gyre_hpc.launch.slurm.task import Task
from gyre_hpc.launch.slurm.told import Told
from gyre_hpc.observability.job_events import of_job
from tests.fakes.slurm_commands import RUNNING, Site

TASK = Task(job="7", restarts=0, node=0, hosts=("n1", "n2"))
COMPLETING = "JobId=7 JobState=COMPLETING Restarts={} Reason={} ExitCode=0:15"
TIMED_OUT, CANCELLED, PUT_BACK = COMPLETING.format(0, "TimeLimit"), COMPLETING.format(0, "None"), COMPLETING.format(1, "TimeLimit")


class PatientStop(Stop):
    """Keeps when it is to be passed on again, and sets no alarm."""

    def __init__(self) -> None:
        super().__init__()
        self.again: list[float] = []

    def again_in(self, seconds: float) -> None:
        self.again.append(seconds)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


@pytest.fixture
def claim(tmp_path: Path) -> Claim:
    folder = RunFolder(tmp_path / "run")
    folder.events_folder.mkdir(parents=True)
    return Claim(folder=folder, attempt=1)


def told_of(claim: Claim, *, successor: str = "", goes_on: bool = True, stop: Stop | None = None) -> Told:
    return Told(claim, TASK, stop or PatientStop(), successor=successor, goes_on=goes_on)


def test_a_job_at_its_time_limit_is_put_back_at_once_and_once(site: Site, claim: Claim) -> None:
    site.says(TIMED_OUT)
    told = told_of(claim)
    told.look("SIGTERM")
    site.says(PUT_BACK)  # as SLURM tells of it from then on
    told.look("SIGINT")
    assert site.heard() == ["scontrol requeue 7"] and told.is_put_back and told.fate() is Fate.timed_out
    said = [event.fields for event in of_job(claim.folder, 1)]
    assert [(each["signal"], each["fate"], each["ordered"]) for each in said] == [
        ("SIGTERM", "timed_out", "requeue"),
        ("SIGINT", "timed_out", ""),
    ]


def test_a_limit_that_comes_before_the_stop_is_done_puts_the_job_back_too(site: Site, claim: Claim) -> None:
    told = told_of(claim)
    told.look("SIGUSR2")
    assert not site.heard() and not told.is_put_back
    site.says(TIMED_OUT)
    told.look("SIGTERM")
    assert site.heard() == ["scontrol requeue 7"] and told.is_put_back


@pytest.mark.parametrize("said", [CANCELLED, RUNNING, RUNNING.replace("PreemptTime=None", "PreemptTime=1796041326"), PUT_BACK, ""])
def test_nothing_else_puts_a_job_back_while_it_ends(site: Site, claim: Claim, said: str) -> None:
    site.says(said)
    told = told_of(claim)
    told.look("SIGTERM")
    assert not site.heard() and not told.is_put_back


def test_a_job_that_is_not_to_go_on_is_not_put_back(site: Site, claim: Claim) -> None:
    site.says(TIMED_OUT)
    told_of(claim, goes_on=False).look("SIGTERM")
    assert not site.heard()


def test_an_order_that_slurm_refuses_is_told_and_tried_again_at_the_end(site: Site, claim: Claim) -> None:
    site.says(TIMED_OUT, order_fails=True)
    told = told_of(claim)
    told.look("SIGTERM")
    assert not told.is_put_back and "scontrol failed" in of_job(claim.folder, 1)[0].fields["ordered"]


def test_a_cancel_ends_the_successor_and_a_time_limit_does_not(site: Site, claim: Claim) -> None:
    site.says(TIMED_OUT)
    told_of(claim, successor="8", goes_on=False).look("SIGTERM")
    assert not site.heard()
    site.says(CANCELLED)
    told_of(claim, successor="8", goes_on=False).look("SIGTERM")
    assert site.heard() == ["scancel 8"]


def test_a_question_outlives_the_signals_that_slurm_sends_to_every_process(site: Site, claim: Claim) -> None:
    site.says(TIMED_OUT, before="kill -TERM $$; kill -USR2 $$")
    told_of(claim).look("SIGTERM")
    assert site.heard() == ["scontrol requeue 7"]


def test_a_stop_waits_for_no_save_into_the_end_that_slurm_tells(site: Site, claim: Claim) -> None:
    stop, began = PatientStop(), unix_s()
    site.says(f"{RUNNING} EndTime={int(began) + 600}")
    told_of(claim, stop=stop).look("SIGUSR2")
    assert len(stop.again) == 1 and 0.0 <= began + 600 - ENDING_S - stop.again[0] - began <= 1.0 + unix_s() - began
    site.says(CANCELLED + f" EndTime={int(began)}")
    told_of(claim, stop=stop).look("SIGTERM")
    assert len(stop.again) == 1


@pytest.mark.parametrize(("left_s", "within_s"), [(120.0, 95.0), (37.5, 12.5), (9.0, 3.0), (0.0, 0.0), (-5.0, 0.0)])
def test_of_the_time_that_is_left_ending_has_its_part(left_s: float, within_s: float) -> None:
    assert save_within_s(left_s) == pytest.approx(within_s)


HOLDER = """
import signal, subprocess, sys
from gyre_hpc.launch.holding import stop_signals
child = "import signal\\nfor _ in range(2): print(signal.sigwait([signal.SIGTERM]).name, flush=True)"
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
process = subprocess.Popen([sys.executable, "-c", child])
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
with stop_signals(signal.SIGUSR2) as stop:
    stop.at_signal = lambda name: (print("told", name, flush=True), stop.again_in(0.5))
    stop.pass_on_to(process)
    signal.raise_signal(signal.SIGUSR2)
    process.wait()
    signal.raise_signal(signal.SIGTERM)
print(signal.getitimer(signal.ITIMER_REAL)[0], signal.getsignal(signal.SIGALRM) is signal.SIG_DFL)
"""


def test_a_stop_is_passed_on_once_more_when_its_time_is_over_and_what_comes_after_the_run_is_heard_too() -> None:
    done = subprocess.run([sys.executable, "-c", HOLDER], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["0.0 True", "SIGTERM", "SIGTERM", "told SIGTERM", "told SIGUSR2"]
