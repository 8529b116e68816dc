"""The crash-loop guard counts attempts without an update or a new token, by what lies in the run folder."""

import json
from pathlib import Path

import msgspec
import pytest

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.launch.slurm.progress import allocations, brought, fruitless, is_stopped
from gyre_hpc.observability.events import EventWriter
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.journal import CallProgress, ExecutionEnd, Record
from gyre_hpc.protocol.people import Answer
from gyre_hpc.supervisor.attempts import end_of
from gyre_hpc.trajectory.segment import frame, header

TOKENS = CallProgress(
    call="c", start=0, output_ids=b"\1\0\0\0", logprobs=b"\0\0\0\0", spans=(), oldest_kv=Version(0, 0), cell="cell-0", time=0.0
)


def note(folder: RunFolder, attempt: int, kind: str) -> None:
    folder.events_folder.mkdir(exist_ok=True)
    events = EventWriter(folder.events("controller", attempt), "controller", attempt)
    events.note(kind, {})
    events.close()


def journal(folder: RunFolder, attempt: int, *records: Record) -> None:
    folder.journal.mkdir(exist_ok=True)
    path = folder.journal / f"gateway-0-{attempt}-000000.gyj"
    path.write_bytes(header() + b"".join(map(frame, records)))


def test_an_attempt_that_left_nothing_brought_nothing(tmp_path: Path):
    assert not brought(RunFolder(tmp_path), 1)


@pytest.mark.parametrize(("kind", "does"), [("applied", True), ("version_published", False)])
def test_an_update_counts(tmp_path: Path, kind: str, does: bool):
    folder = RunFolder(tmp_path)
    note(folder, 1, kind)
    assert brought(folder, 1) is does and not brought(folder, 2)


@pytest.mark.parametrize(("record", "does"), [(TOKENS, True), (ExecutionEnd("e", 0.0), False)])
def test_a_sampled_token_counts_and_other_records_do_not(tmp_path: Path, record: Record, does: bool):
    folder = RunFolder(tmp_path)
    journal(folder, 1, record)
    assert brought(folder, 1) is does and not brought(folder, 11)


def answered(folder: RunFolder, attempt: int, kind: str, *, is_done: bool = True, id: str = "1-a") -> None:
    folder.commands.mkdir(exist_ok=True)
    folder.answer(id).write_bytes(msgspec.json.encode(Answer(attempt, is_done, "", kind=kind)))


def ended(folder: RunFolder, attempt: int, next: str) -> None:
    end_of(folder, attempt).parent.mkdir(parents=True, exist_ok=True)
    end_of(folder, attempt).write_text(json.dumps({"exit_code": 130, "reason": "me", "time": 5.0, "next": next}))


@pytest.mark.parametrize(
    ("kind", "attempt", "is_done", "is_stopped_then"),
    [("stop", 2, True, True), ("stop", 1, True, False), ("stop", 2, False, False), ("stacks", 2, True, False)],
)
def test_an_attempt_is_stopped_by_a_stop_that_it_took(tmp_path: Path, kind: str, attempt: int, is_done: bool, is_stopped_then: bool):
    folder = RunFolder(tmp_path)
    assert not is_stopped(folder, 2)
    answered(folder, attempt, kind, is_done=is_done)
    folder.answer("2-b").write_text("no answer")
    assert is_stopped(folder, 2) is is_stopped_then


@pytest.mark.parametrize(("next", "is_stopped_then"), [("end", False), ("leave", True), ("requeue", True)])
def test_a_stop_whose_job_said_that_nothing_follows_is_over(tmp_path: Path, next: str, is_stopped_then: bool):
    """Who starts it after that has decided so."""
    folder = RunFolder(tmp_path)
    answered(folder, 2, "stop")
    ended(folder, 2, next)
    assert is_stopped(folder, 2) is is_stopped_then


def test_a_damaged_journal_counts_for_nothing(tmp_path: Path):
    folder = RunFolder(tmp_path)
    folder.journal.mkdir()
    (folder.journal / "gateway-0-1-000000.gyj").write_bytes(b"no journal at all")
    assert not brought(folder, 1)


def test_only_attempts_since_the_last_one_that_brought_something_are_counted(tmp_path: Path):
    folder = RunFolder(tmp_path)
    journal(folder, 2, TOKENS)
    assert [fruitless(folder, attempt) for attempt in (1, 2, 3, 4)] == [1, 0, 1, 2]


def told(folder: RunFolder, attempt: int, kind: str, **fields: object) -> None:
    """As the attempt's job says it."""
    folder.events_folder.mkdir(exist_ok=True)
    events = EventWriter(folder.events("job", attempt), "job", attempt)
    events.note(kind, fields)
    events.close()


@pytest.mark.parametrize(("fate", "is_blamed"), [("running", True), ("cancelled", True), ("preempted", False), ("requeued", False)])
def test_an_attempt_whose_nodes_slurm_took_is_not_blamed(tmp_path: Path, fate: str, is_blamed: bool):
    folder = RunFolder(tmp_path)
    told(folder, 2, "job_told", fate=fate)
    assert fruitless(folder, 3) == 2 + is_blamed


@pytest.mark.parametrize(("restarts", "asker", "is_by_hand"), [(0, "", True), (1, "", False), (0, "7", False)])
def test_what_was_before_somebodys_own_start_counts_no_more(tmp_path: Path, restarts: int, asker: str, is_by_hand: bool):
    folder = RunFolder(tmp_path)
    told(folder, 3, "job_started", restarts=restarts, asker=asker)
    assert fruitless(folder, 4) == (2 if is_by_hand else 4)


def test_allocations_are_counted_since_somebodys_own_start(tmp_path: Path):
    folder = RunFolder(tmp_path)
    for attempt, restarts, asker in ((1, 0, ""), (2, 1, ""), (3, 0, "7"), (4, 0, ""), (5, 1, "")):
        told(folder, attempt, "job_started", restarts=restarts, asker=asker)
    assert [allocations(folder, attempt) for attempt in range(1, 6)] == [1, 2, 3, 1, 2]
    assert allocations(RunFolder(tmp_path / "silent"), 3) == 3
