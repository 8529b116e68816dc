"""squeue's lines, and the cache that keeps its calls few."""

import json
import os
import stat
from pathlib import Path

import pytest

from gyre_hpc.report.watch.squeue import FRESH_S, parse, read_queue, seconds

LINES = """\
12|RUNNING|1796021000|1-02:03:04|n[1-4]|batch|None|gyre-a|b-0
13|PENDING|1796029000|1:00:00||batch|Resources|gyre
14_3|PENDING|N/A|INVALID||preemptible|BeginTime|sat
15|RUNNING|1796021000|UNLIMITED|n9|long|None|x
slurm_load_jobs error: half a line

"""


def fake_squeue(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, code: int = 0) -> Path:
    """A squeue on PATH that notes each call; returns the notes."""
    calls = folder / "calls"
    (folder / "said").write_text(text)
    program = folder / "squeue"
    program.write_text(f'#!/bin/sh\necho "$SLURM_TIME_FORMAT $@" >> {calls}\ncat {folder}/said\nexit {code}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return calls


def test_lines_of_squeue_are_read_whatever_the_names_hold():
    jobs = parse(LINES)
    assert [(job.id, job.state, job.start, job.left_s) for job in jobs] == [
        ("12", "RUNNING", 1796021000.0, 93784.0),
        ("13", "PENDING", 1796029000.0, 3600.0),
        ("14_3", "PENDING", None, None),
        ("15", "RUNNING", 1796021000.0, None),
    ]
    assert (jobs[0].name, jobs[0].nodes, jobs[1].reason) == ("gyre-a|b-0", "n[1-4]", "Resources")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0:07", 7),
        ("12:00", 720),
        ("2:00:01", 7201),
        ("3-00:00:00", 259200),
        ("UNLIMITED", None),
        ("NOT_SET", None),
        ("", None),
        ("a-1:2", None),
    ],
)
def test_time_left_is_seconds_or_nothing(text: str, value: float | None):
    assert seconds(text) == value


def test_without_slurm_there_is_no_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read_queue(tmp_path) is None


def test_squeue_is_called_once_in_thirty_seconds_for_whoever_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    calls = fake_squeue(tmp_path, monkeypatch, LINES)
    first = read_queue(tmp_path, now=1000.0)
    assert first is not None and first.job("14") == first.jobs[2]
    assert read_queue(tmp_path, now=1000.0 + FRESH_S - 1) == first
    assert len(calls.read_text().splitlines()) == 1
    assert calls.read_text().startswith("%s --me --noheader")
    assert read_queue(tmp_path, now=1000.0 + FRESH_S + 1) != first
    assert len(calls.read_text().splitlines()) == 2
    (kept,) = tmp_path.glob("squeue-*.json")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600 and not list(tmp_path.glob("*.asking"))


def test_a_queue_that_does_not_answer_leaves_what_was_known_and_is_not_asked_at_once_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fake_squeue(tmp_path, monkeypatch, LINES)
    known = read_queue(tmp_path, now=1000.0)
    calls = fake_squeue(tmp_path, monkeypatch, "", code=1)
    later = read_queue(tmp_path, now=1100.0)
    assert known is not None and later is not None
    assert (later.jobs, later.asked) == (known.jobs, 1000.0) and "exit code 1" in later.trouble
    before = len(calls.read_text().splitlines())
    assert read_queue(tmp_path, now=1101.0) == later
    assert len(calls.read_text().splitlines()) == before


def test_while_another_command_asks_what_was_known_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    calls = fake_squeue(tmp_path, monkeypatch, LINES)
    known = read_queue(tmp_path, now=1000.0)
    claim = tmp_path / f"squeue-{os.getuid()}.asking"
    claim.touch()
    now = claim.stat().st_mtime
    assert read_queue(tmp_path, now=now) == known
    assert len(calls.read_text().splitlines()) == 1
    os.utime(claim, (now - 2 * FRESH_S, now - 2 * FRESH_S))  # its owner died
    fresh = read_queue(tmp_path, now=now)
    assert fresh is not None and fresh.asked == now and not claim.exists()


@pytest.mark.parametrize("damage", ["", "{", json.dumps({"time": "soon"})])
def test_a_damaged_cache_is_asked_for_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str):
    fake_squeue(tmp_path, monkeypatch, LINES)
    (tmp_path / f"squeue-{os.getuid()}.json").write_text(damage)
    queue = read_queue(tmp_path, now=1000.0)
    assert queue is not None and len(queue.jobs) == 4
