"""Whether a run lives, and how far its allocation takes it: pure judgements."""

from pathlib import Path

import pytest

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.observability.events import EventWriter
from gyre_hpc.observability.job_record import JobRecord
from gyre_hpc.observability.status import Status
from gyre_hpc.protocol.node_map import RunStart
from gyre_hpc.report.watch.jobs import Jobs
from gyre_hpc.report.watch.outlook import look_ahead
from gyre_hpc.report.watch.signs import End, Refusal, Signs, read_signs
from gyre_hpc.report.watch.squeue import Queue, QueueJob
from gyre_hpc.report.watch.state import RunState, Verdict, judge
from gyre_hpc.report.watch.watched import Run, Watched, job_lines
from gyre_hpc.supervisor.attempts import claim_attempt

NOW = 1_000_000.0
START = RunStart(1, "http://n1:7", job="12", host="n1", pid=5)


def queue_job(id: str, state: str, start: float | None = None) -> QueueJob:
    return QueueJob(id=id, state=state, start=start, left_s=600.0, nodes="n1", partition="p", reason="Resources", name="gyre")


def jobs(*queued: QueueJob, submitted: tuple[str, ...] = ("12",), asked: float = NOW) -> Jobs:
    return Jobs(submitted=tuple(JobRecord(job=job) for job in submitted), queue=Queue(time=NOW, asked=asked, jobs=queued))


def signs(
    attempt: int = 1, *, end: End | None = None, silent_s: float = 1.0, start: RunStart | None = START, refusal: Refusal | None = None
) -> Signs:
    return Signs(attempt=attempt, end=end, start=start, silent_s=silent_s, refusal=refusal)


ENDED = End(exit_code=130, reason="SIGTERM", time=NOW - 60)
NONE = Jobs(submitted=(), queue=None)
PENDING, RUNNING = queue_job("12", "PENDING"), queue_job("12", "RUNNING", NOW - 500)


@pytest.mark.parametrize(
    ("seen", "at", "status_attempt", "state"),
    [
        (signs(0), NONE, 0, RunState.never_started),
        (signs(0), jobs(PENDING), 0, RunState.waiting),
        (signs(0), jobs(RUNNING), 0, RunState.starting),
        (signs(0), jobs(), 0, RunState.never_started),
        (signs(0), jobs(asked=0.0), 0, RunState.waiting),  # nobody can tell
        (signs(), NONE, 0, RunState.starting),
        (signs(2), NONE, 1, RunState.starting),  # status.json is of the attempt before
        (signs(), NONE, 1, RunState.running),
        (signs(silent_s=14.9), jobs(RUNNING), 1, RunState.running),
        (signs(silent_s=15.0), jobs(RUNNING), 1, RunState.silent),
        (signs(silent_s=40.0, start=None), NONE, 1, RunState.silent),
        (signs(silent_s=40.0), jobs(PENDING), 1, RunState.requeued),
        (signs(silent_s=40.0), jobs(), 1, RunState.dead),
        (signs(silent_s=40.0), jobs(asked=0.0), 1, RunState.silent),
        (signs(end=ENDED), NONE, 1, RunState.over),
        (signs(end=ENDED), jobs(PENDING), 1, RunState.requeued),
        (signs(end=ENDED), jobs(RUNNING), 1, RunState.ended),  # not quite: it may still say what follows
        (signs(end=ENDED), jobs(queue_job("12", "COMPLETING", NOW - 500)), 1, RunState.ended),
        (signs(end=ENDED), jobs(), 1, RunState.over),
        (signs(end=ENDED), jobs(queue_job("12", "RUNNING", NOW - 5)), 1, RunState.starting),  # the same job again
        (signs(end=ENDED), jobs(queue_job("13", "RUNNING", NOW - 500), submitted=("12", "13")), 1, RunState.starting),
        (signs(end=End(exit_code=0, reason="done", time=NOW)), jobs(PENDING), 1, RunState.over),
    ],
)
def test_a_run_is_judged_by_its_signs_and_the_queue(seen: Signs, at: Jobs, status_attempt: int, state: RunState):
    verdict = judge(seen, at, status_attempt=status_attempt, now=NOW)
    assert verdict.state is state, verdict


REFUSAL = Refusal(job="12", exit_code=2, reason="n2: network.interface='x': no such card")


@pytest.mark.parametrize(
    ("seen", "at", "code"),
    [
        (signs(0, refusal=REFUSAL), jobs(), 2),
        (signs(0, refusal=REFUSAL), NONE, 2),  # started by hand
        (signs(end=ENDED, refusal=REFUSAL), jobs(), 2),
        (signs(silent_s=40.0, refusal=REFUSAL), jobs(), 2),
        (signs(0, refusal=REFUSAL), jobs(RUNNING), None),
        (signs(0, refusal=REFUSAL), jobs(submitted=("12", "13")), None),  # somebody tried again
        (signs(end=ENDED, refusal=REFUSAL), jobs(submitted=("12", "13")), 130),
    ],
)
def test_a_job_that_was_refused_before_its_attempt_is_told_with_the_reason(seen: Signs, at: Jobs, code: int | None):
    verdict = judge(seen, at, status_attempt=1, now=NOW)
    assert verdict.exit_code == code and (REFUSAL.reason in verdict.text) is (code == 2)
    assert code is None or verdict.state is RunState.over


def test_what_a_job_said_before_its_attempt_is_read_until_that_attempt_begins(tmp_path: Path):
    folder = RunFolder(tmp_path)
    events = EventWriter(folder.events("job", 1), "job", 1)
    events.note("job_ended", {"job": "12", "exit_code": 2, "signal": "", "next": "end", "reason": "no"})
    events.close()
    assert read_signs(folder).refusal == Refusal(job="12", exit_code=2, reason="no")
    claim_attempt(folder.attempts)
    assert read_signs(folder, patient=False).refusal is None


def test_silence_is_told_with_its_length_and_the_job():
    text = judge(signs(silent_s=73.0), jobs(RUNNING), status_attempt=1, now=NOW).text
    assert "for 73 s (since " in text and "job 12 is running on n1" in text


@pytest.mark.parametrize(
    ("behind_s", "state", "is_told"), [(90.0, RunState.running, True), (5.0, RunState.running, False), (90.0, RunState.over, False)]
)
def test_a_status_that_is_not_of_now_is_said_to_be_so(tmp_path: Path, behind_s: float, state: RunState, is_told: bool):
    seen = Signs(attempt=1, end=None, start=START, silent_s=1.0, status_behind_s=behind_s)
    watched = Watched(
        run=Run(folder=RunFolder(tmp_path), config=Config()), now=NOW, signs=seen, status=None, jobs=NONE,
        verdict=Verdict(state=state, text=""), outlook=None,
    )  # fmt: skip
    lines = job_lines(watched)
    assert bool(lines) is is_told
    assert not is_told or "its status was written 1m30s before that" in lines[0]


def test_a_satellites_job_is_none_of_the_run():
    at = Jobs(submitted=(JobRecord(job="12", kind="satellite"),), queue=Queue(time=NOW, asked=NOW, jobs=(RUNNING,)))
    assert at.living() is None and at.newest is None and at.num_satellites == 1


def status(update: int, *, update_s: float | None, eta_s: float | None = None) -> Status:
    return Status(time=NOW, update=update, updates_total=100, update_s=update_s, eta_s=eta_s)


@pytest.mark.parametrize(
    ("update", "eta_s", "left_s", "by_then", "further"),
    [
        (10, 9000.0, 950.0, 19, 3),  # 81 left, 34 in a job
        (10, 8950.0, 950.0, 20, 3),  # half of the present one is made
        (98, 200.0, 950.0, 100, 0),
        (10, 9000.0, 0.0, 10, 3),
        (10, None, 3500.0, 45, 2),
        (10, 8000.0, 150.0, 12, 3),  # an ETA of old rates gives at most the present update
    ],
)
def test_versions_by_the_end_of_an_allocation_and_further_jobs(update: int, eta_s: float | None, left_s: float, by_then: int, further: int):
    seen = look_ahead(status(update, update_s=100.0, eta_s=eta_s), left_s, job_s=3600.0, lead_s=120.0)
    assert (seen.updates_by_then, seen.further_jobs) == (by_then, further)


def test_what_was_not_measured_is_not_told_and_too_long_an_update_is_said():
    assert look_ahead(status(0, update_s=None), 500.0, job_s=600.0, lead_s=0.0).updates_by_then is None
    assert look_ahead(status(0, update_s=900.0), 500.0, job_s=600.0, lead_s=0.0).further_jobs == -1


def test_a_job_that_was_submitted_after_the_queue_was_asked_is_not_gone():
    at = Jobs(submitted=(JobRecord(job="13", submitted=NOW - 5),), queue=Queue(time=NOW, asked=NOW - 20, jobs=()))
    assert judge(signs(0), at, status_attempt=0, now=NOW).state is RunState.waiting
    later = Jobs(submitted=at.submitted, queue=Queue(time=NOW, asked=NOW, jobs=()))
    assert judge(signs(0), later, status_attempt=0, now=NOW).state is RunState.never_started


def ended(next: str, exit_code: int = 130) -> Signs:
    return signs(end=End(exit_code=exit_code, reason="SIGTERM", time=NOW - 3, next=next))


BEFORE = NOW - 20


@pytest.mark.parametrize(
    ("seen", "at", "state"),
    [
        (ended("requeue"), jobs(RUNNING, asked=BEFORE), RunState.requeued),
        (ended("requeue"), jobs(), RunState.over),  # somebody cancelled it
        (ended("requeue"), NONE, RunState.over),  # there is no SLURM to ask
        (ended("leave"), jobs(RUNNING, asked=BEFORE), RunState.requeued),
        (ended("leave"), jobs(queue_job("12", "COMPLETING", NOW - 500)), RunState.ended),
        (ended("leave"), jobs(), RunState.over),
        (ended("end"), jobs(RUNNING, asked=BEFORE), RunState.over),
        (ended("end"), jobs(queue_job("13", "PENDING"), submitted=("12", "13"), asked=BEFORE), RunState.over),  # cancelled since
        (ended("end"), jobs(queue_job("12", "COMPLETING", NOW - 500)), RunState.over),
        (ended(""), jobs(RUNNING, asked=BEFORE), RunState.ended),
        (ended(""), jobs(PENDING), RunState.requeued),
        (ended("", exit_code=0), jobs(RUNNING, asked=BEFORE), RunState.over),
        (signs(end=End(exit_code=130, reason="stopped", time=NOW - 3), start=None), jobs(asked=BEFORE), RunState.over),  # in no job
    ],
)
def test_an_ended_attempt_is_judged_by_what_its_job_said_until_the_queue_is_asked_again(seen: Signs, at: Jobs, state: RunState):
    verdict = judge(seen, at, status_attempt=1, now=NOW)
    assert verdict.state is state and (state is RunState.over or verdict.exit_code is None), verdict


def test_who_goes_on_is_named_before_the_queue_shows_it():
    def text(*submitted: str) -> str:
        return judge(ended("leave"), jobs(RUNNING, submitted=submitted, asked=BEFORE), status_attempt=1, now=NOW).text

    assert "SLURM puts job 12 back" in text("12") and "job 13 goes on" in text("12", "13")


@pytest.mark.parametrize("exit_code", [0, 130])
def test_a_run_that_somebody_started_again_after_its_end_is_not_over(exit_code: int):
    records = (JobRecord(job="12"), JobRecord(job="13", submitted=NOW - 1))
    seen = ended("end", exit_code)

    def state(asked: float, *queued: QueueJob) -> RunState:
        return judge(seen, Jobs(submitted=records, queue=Queue(time=NOW, asked=asked, jobs=queued)), status_attempt=1, now=NOW).state

    assert state(BEFORE) is state(NOW, queue_job("13", "PENDING")) is RunState.requeued
    assert state(NOW, queue_job("13", "RUNNING", NOW)) is RunState.starting and state(NOW) is RunState.over


def test_a_job_that_waited_before_its_attempt_is_not_taken_for_one_that_was_put_back():
    start = RunStart(1, "http://n1:7", job="12", host="n1", pid=5, unix_s=NOW - 25)
    old, new = (judge(signs(silent_s=20.0, start=start), jobs(PENDING, asked=NOW - ago), status_attempt=1, now=NOW) for ago in (26, 2))
    assert (old.state, new.state) == (RunState.silent, RunState.requeued)


def test_a_queue_that_was_asked_before_the_end_says_nothing_of_an_ended_job(tmp_path: Path):
    run = Run(folder=RunFolder(tmp_path), config=Config())

    def lines(asked: float) -> list[str]:
        seen, at = signs(end=ENDED), jobs(RUNNING, queue_job("13", "RUNNING"), asked=asked)
        at = Jobs(submitted=(*at.submitted, JobRecord(job="13", kind="satellite")), queue=at.queue)
        verdict = judge(seen, at, status_attempt=1, now=NOW)
        return job_lines(Watched(run=run, now=NOW, signs=seen, status=None, jobs=at, verdict=verdict, outlook=None))

    assert lines(ENDED.time - 1) == []
    own, satellites = lines(ENDED.time + 1)
    assert own.startswith("job 12 running") and satellites == "satellites: 1 job runs"
