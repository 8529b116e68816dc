"""Event files: never in the way of the writer, never half read by the reader."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.observability import events as module
from gyre_hpc.observability.events import EventReader, EventWriter, read_events
from gyre_hpc.protocol.identity import Version


def write(path: Path, *kinds: str, process: str = "cell-0", attempt: int = 1) -> None:
    writer = EventWriter(path, process, attempt)
    for kind in kinds:
        writer.note(kind, {"n": 1})
    writer.close()


def test_a_fact_comes_back_as_it_was_noted(tmp_path: Path):
    writer = EventWriter(tmp_path / "a.jsonl", "cell-0", 2)
    writer.note("switch", {"cell": "cell-0", "steps": {"drain": 0.5}, "version": Version(1, 4)})
    writer.close()
    (event,) = read_events(tmp_path)
    assert (event.process, event.attempt, event.kind) == ("cell-0", 2, "switch")
    assert event.fields == {"cell": "cell-0", "steps": {"drain": 0.5}, "version": "1.4"}
    assert event.time > 1e9 and event.mono >= 0


def test_every_line_is_json_by_itself(tmp_path: Path):
    write(tmp_path / "a.jsonl", "one", "two")
    lines = (tmp_path / "a.jsonl").read_text().splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["one", "two"]


def test_files_of_all_processes_are_merged_by_time(tmp_path: Path):
    first, second = EventWriter(tmp_path / "a.jsonl", "a", 1), EventWriter(tmp_path / "b.jsonl", "b", 1)
    for number in range(6):
        (first if number % 2 else second).note(str(number), {})
    first.close()
    second.close()
    assert [event.kind for event in read_events(tmp_path)] == list("012345")


@given(cut=st.integers(min_value=1, max_value=60))
def test_a_torn_line_is_skipped_and_never_glued_to_the_next(tmp_path_factory: pytest.TempPathFactory, cut: int):
    folder = tmp_path_factory.mktemp("events")
    path = folder / "a.jsonl"
    write(path, "whole", "torn")
    os.truncate(path, path.stat().st_size - cut)
    write(path, "after")
    reader = EventReader(folder)
    assert [event.kind for event in reader.poll() if event.kind != "torn"] == ["whole", "after"]


def test_a_line_that_is_being_written_is_read_once_it_is_whole(tmp_path: Path):
    write(tmp_path / "a.jsonl", "one")
    whole = (tmp_path / "a.jsonl").read_bytes()
    (tmp_path / "a.jsonl").write_bytes(whole + whole[:20])
    reader = EventReader(tmp_path)
    assert len(reader.poll()) == 1
    assert reader.poll() == []
    with (tmp_path / "a.jsonl").open("ab") as file:
        file.write(whole[20:])
    assert [event.kind for event in reader.poll()] == ["one"]
    assert reader.num_torn == 0


def test_new_files_are_found_by_a_later_poll(tmp_path: Path):
    reader = EventReader(tmp_path / "events")
    assert reader.poll() == []
    write(tmp_path / "events" / "a.jsonl", "one")
    assert [event.kind for event in reader.poll()] == ["one"]
    write(tmp_path / "events" / "b.jsonl", "two")
    assert [event.kind for event in reader.poll()] == ["two"]


def full(fd: int, data: bytes) -> int:
    raise OSError(28, "No space left on device")


class Clock:
    """Time, and what is to be called at a time, by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.calls: list[tuple[float, Callable[[], None]]] = []
        monkeypatch.setattr(module, "monotonic_s", lambda: self.now)

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        self.calls.append((self.now + seconds, call))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        due = [call for at, call in self.calls if at <= self.now]
        self.calls = [(at, call) for at, call in self.calls if at > self.now]
        for call in due:
            call()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def kinds(folder: Path) -> list[str]:
    return [event.kind for event in read_events(folder)]


def test_without_a_timer_each_event_is_written_at_once(tmp_path: Path):
    writer = EventWriter(tmp_path / "a.jsonl", "p", 1)
    for count in (1, 2, 3):
        writer.note("one", {})
        assert len(kinds(tmp_path)) == count


def test_the_tail_of_a_burst_is_written_though_nothing_follows(tmp_path: Path, clock: Clock):
    writer = EventWriter(tmp_path / "a.jsonl", "p", 1, clock.later)
    clock.pass_time(60.0)
    for kind in ("first", "second", "third"):
        writer.note(kind, {})
    assert kinds(tmp_path) == ["first"] and len(clock.calls) == 1
    clock.pass_time(module.FLUSH_S)
    assert kinds(tmp_path) == ["first", "second", "third"]


def test_no_timer_is_armed_while_nothing_waits(tmp_path: Path, clock: Clock):
    writer = EventWriter(tmp_path / "a.jsonl", "p", 1, clock.later)
    clock.pass_time(60.0)
    assert not clock.calls
    writer.note("alone", {})
    assert not clock.calls, "it was written"
    writer.note("another", {})
    clock.pass_time(module.FLUSH_S)
    clock.pass_time(60.0)
    assert not clock.calls and len(kinds(tmp_path)) == 2


def test_what_a_full_disk_refused_is_tried_until_it_is_written(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch):
    writer = EventWriter(tmp_path / "a.jsonl", "p", 1, clock.later)
    real = os.write
    monkeypatch.setattr(module.os, "write", full)
    writer.note("kept", {})
    clock.pass_time(60.0)
    assert len(clock.calls) == 1
    monkeypatch.setattr(module.os, "write", real)
    clock.pass_time(module.FLUSH_S)
    assert kinds(tmp_path) == ["kept"] and not clock.calls


def test_a_loop_that_is_gone_costs_no_event(tmp_path: Path, clock: Clock):
    def gone(seconds: float, call: Callable[[], None]) -> None:
        raise RuntimeError("Event loop is closed")

    writer = EventWriter(tmp_path / "a.jsonl", "p", 1, gone)
    writer.note("one", {})
    writer.note("two", {})
    assert kinds(tmp_path) == ["one", "two"]


def test_a_closed_writer_arms_nothing(tmp_path: Path, clock: Clock):
    writer = EventWriter(tmp_path / "a.jsonl", "p", 1, clock.later)
    writer.close()
    writer.note("late", {})
    assert not clock.calls and kinds(tmp_path) == []


def test_events_are_buffered_until_size_age_or_flush(tmp_path: Path, clock: Clock):
    writer = EventWriter(tmp_path / "a.jsonl", "p", 1, clock.later)
    writer.note("one", {})
    assert read_events(tmp_path) == []
    writer.flush()
    assert len(read_events(tmp_path)) == 1
    clock.now += module.FLUSH_S
    writer.note("two", {})
    assert len(read_events(tmp_path)) == 2
    writer.note("large", {"text": "x" * module.FLUSH_BYTES})
    assert len(read_events(tmp_path)) == 3


def test_a_writer_that_cannot_start_says_so(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        EventWriter(tmp_path / "file" / "a.jsonl", "p", 1)


def test_a_full_disk_never_reaches_the_caller_and_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    writer = EventWriter(tmp_path / "a.jsonl", "p", 1)
    real = os.write
    monkeypatch.setattr(module.os, "write", full)
    writer.note("kept", {})
    writer.flush()
    assert writer.num_lost == 0
    monkeypatch.setattr(module, "KEEP_BYTES", 10)
    writer.note("lost", {})
    writer.flush()
    assert writer.num_lost == 2
    monkeypatch.setattr(module.os, "write", real)
    writer.note("after", {})
    writer.close()
    assert [event.kind for event in read_events(tmp_path)] == ["after"]


def test_what_json_cannot_hold_is_written_as_text(tmp_path: Path):
    writer = EventWriter(tmp_path / "a.jsonl", "p", 1)
    writer.note("odd", {"big": 1 << 80, "path": Path("/x"), "nan": float("nan")})
    writer.close()
    (event,) = read_events(tmp_path)
    assert "1208925819614629174706176" in str(event.fields["big"])


def test_noting_after_close_is_harmless(tmp_path: Path):
    writer = EventWriter(tmp_path / "a.jsonl", "p", 1)
    writer.close()
    writer.note("late", {})
    writer.flush()
    assert read_events(tmp_path) == []


@pytest.mark.parametrize("step", [-7200.0, 7200.0])
def test_a_clock_that_is_set_puts_no_event_of_a_process_or_an_attempt_before_an_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: float
):
    def note(attempt: int, time: float, number: int) -> None:
        monkeypatch.setattr(module, "unix_s", lambda: time)
        writer = EventWriter(tmp_path / f"controller-{attempt}.jsonl", "controller", attempt)
        writer.note("applied", {"update": number})
        writer.close()

    note(1, 10_000.0, 0)
    note(1, 10_001.0 + step, 1)
    note(2, 10_002.0 - step, 2)
    polled = EventReader(tmp_path)
    assert [event.fields["update"] for event in polled.poll()] == [0, 1, 2] == [event.fields["update"] for event in read_events(tmp_path)]
    note(2, 5.0, 3)
    note(2, 4.0, 4)
    assert [event.fields["update"] for event in polled.poll()] == [3, 4]
