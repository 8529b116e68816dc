"""The journal's writer: order, segments, torn ends, and failures that take everything behind them along."""

import asyncio
import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from gyre_hpc.errors import StorageFull
from gyre_hpc.gateway import journal_writer
from gyre_hpc.gateway.journal_writer import JournalWriter, read_journal, segments
from gyre_hpc.protocol.journal import Delivered, ExecutionEnd, Record


def record(number: int) -> Record:
    return Delivered(f"train-0-0-0/{number}", float(number))


async def append(writer: JournalWriter, *records: Record) -> list[Exception | None]:
    """Outcomes, in the order they came."""
    outcomes: list[Exception | None] = []
    every = asyncio.Event()

    def done(error: Exception | None) -> None:
        outcomes.append(error)
        if len(outcomes) == len(records):
            every.set()

    for one in records:
        writer.append(one, done)
    await every.wait()
    return outcomes


@pytest.mark.parametrize("fsync", [True, False])
def test_records_are_read_back_in_order_over_segments_and_restarts(tmp_path: Path, fsync: bool) -> None:
    async def steps() -> None:
        for start in (0, 10):
            writer = JournalWriter(tmp_path, "gateway-0", 1, fsync=fsync, segment_bytes=100)
            for number in range(start, start + 10):
                assert await append(writer, record(number)) == [None]
            writer.close()

    asyncio.run(steps())
    assert len(segments(tmp_path, "gateway-0", 1)) > 4
    assert read_journal(tmp_path, "gateway-0", 1) == tuple(map(record, range(20)))
    assert read_journal(tmp_path, "gateway-0", 11) == read_journal(tmp_path, "gateway-1", 1) == ()


def test_what_nobody_waits_for_is_written_with_the_next_that_somebody_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_writer, "GROUP_S", 60.0)
    end = ExecutionEnd("train-0-0-0", 1.0)

    async def steps() -> None:
        writer = JournalWriter(tmp_path, "gateway-0", 1)
        told: list[Exception | None] = []
        writer.append(record(0), told.append)
        await asyncio.sleep(0)
        assert told == [] and segments(tmp_path, "gateway-0", 1) == []
        assert await append(writer, end) == [None]
        assert told == [None]
        writer.append(record(1), told.append)
        writer.close()

    asyncio.run(steps())
    assert read_journal(tmp_path, "gateway-0", 1) == (record(0), end, record(1))


def test_a_disk_that_was_quick_is_waited_for_here_until_it_is_slow_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_writer, "TRUSTED", 3)
    here, slow = threading.get_ident(), [False]
    threads: list[bool] = []

    class Os:
        def __getattr__(self, name: str) -> Any:
            return sync if name == "fdatasync" else getattr(os, name)

    def sync(fd: int) -> None:
        threads.append(threading.get_ident() == here)

    times = iter(range(10**6))
    monkeypatch.setattr(journal_writer, "monotonic_s", lambda: next(times) * (1.0 if slow[0] else 1e-6))

    async def steps() -> None:
        writer = JournalWriter(tmp_path, "gateway-0", 1)
        await append(writer, record(0))
        monkeypatch.setattr(journal_writer, "os", Os())
        for number in range(1, 9):
            slow[0] = number == 5
            await append(writer, record(number))
        writer.close()

    asyncio.run(steps())
    assert threads == [False, False, True, True, True, False, False, False]
    assert read_journal(tmp_path, "gateway-0", 1) == tuple(map(record, range(9)))


def test_a_torn_record_is_skipped_and_the_next_start_writes_elsewhere(tmp_path: Path) -> None:
    async def write(*records: Record) -> None:
        writer = JournalWriter(tmp_path, "gateway-0", 1)
        await append(writer, *records)
        writer.close()

    asyncio.run(write(record(0), record(1)))
    (path,) = segments(tmp_path, "gateway-0", 1)
    path.write_bytes(path.read_bytes()[:-3])
    asyncio.run(write(record(1), record(2)))
    assert read_journal(tmp_path, "gateway-0", 1) == (record(0), record(1), record(2))


def test_a_failed_write_fails_what_waits_behind_it_and_leaves_no_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [False, True]

    class Os:
        def __getattr__(self, name: str) -> Any:
            return sync if name == "fdatasync" else getattr(os, name)

    def sync(fd: int) -> None:
        if failures and failures.pop():
            raise OSError(errno.EDQUOT, "quota")
        os.fdatasync(fd)

    async def steps() -> None:
        writer = JournalWriter(tmp_path, "gateway-0", 1)
        await append(writer, record(0))
        monkeypatch.setattr(journal_writer, "os", Os())
        outcomes: list[Exception | None] = []
        writer.append(record(1), outcomes.append)
        while not outcomes:
            # Joins the batch that is being written, or waits behind it.
            writer.append(record(2), outcomes.append)
            await asyncio.sleep(0)
        assert all(isinstance(outcome, StorageFull) for outcome in outcomes)
        assert await append(writer, record(3)) == [None]
        writer.close()

    asyncio.run(steps())
    assert read_journal(tmp_path, "gateway-0", 1) == (record(0), record(3))


def test_a_writer_that_closes_writes_nothing_behind_a_write_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    class Os:
        def __getattr__(self, name: str) -> Any:
            return sync if name == "fdatasync" else getattr(os, name)

    def sync(fd: int) -> None:
        if not begun.is_set():
            begun.set()
            goes_on.wait(20.0)
            raise OSError(errno.EDQUOT, "quota")
        os.fdatasync(fd)

    async def steps() -> None:
        writer = JournalWriter(tmp_path, "gateway-0", 1)
        await append(writer, record(0))
        monkeypatch.setattr(journal_writer, "os", Os())
        writer.append(ExecutionEnd("train-0-0-0", 1.0), lambda error: None)
        while not begun.is_set():
            await asyncio.sleep(0)
        writer.append(record(2), lambda error: None)
        goes_on.set()
        writer.close()

    asyncio.run(steps())
    assert read_journal(tmp_path, "gateway-0", 1) == (record(0),)


def test_where_nothing_can_be_cut_off_the_next_segment_takes_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Os:
        def __getattr__(self, name: str) -> Any:
            return stale if name in ("ftruncate", "fdatasync") else getattr(os, name)

    def stale(fd: int, size: int = 0) -> None:
        raise OSError(errno.ESTALE, "stale file handle")

    async def steps() -> None:
        writer = JournalWriter(tmp_path, "gateway-0", 1)
        await append(writer, record(0))
        with monkeypatch.context() as broken:
            broken.setattr(journal_writer, "os", Os())
            assert [type(outcome) for outcome in await append(writer, record(1))] == [StorageFull]
        assert await append(writer, record(1), record(2)) == [None, None]
        writer.close()

    asyncio.run(steps())
    assert read_journal(tmp_path, "gateway-0", 1) == (record(0), record(1), record(1), record(2))


def test_a_segment_that_could_neither_be_begun_nor_be_removed_is_in_nobodys_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that became read-only in between."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    async def steps() -> None:
        writer = JournalWriter(tmp_path, "gateway-0", 1)
        with monkeypatch.context() as broken:
            broken.setattr(journal_writer, "_sync_folder", refuse)
            broken.setattr(Path, "unlink", refuse)
            for _ in range(2):
                assert [str(outcome) for outcome in await append(writer, record(0))] == ["[Errno 30] Read-only file system"]
        assert await append(writer, record(0), record(1)) == [None, None]
        writer.close()

    asyncio.run(steps())
    assert len(segments(tmp_path, "gateway-0", 1)) == 3
    assert read_journal(tmp_path, "gateway-0", 1) == (record(0), record(1))
