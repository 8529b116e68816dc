"""The one writer of a shard's journal: group commit, segments, and a failed write that fails everything behind it too.

File names: journal/<shard>-<attempt>-<segment>.gyj. Each start of the shard begins a new segment; nothing is appended to a
file that may end in a torn record. Records that wait while the disk works are written together and share one fdatasync; those
nobody waits for (PATIENT) wait GROUP_S for one they can share: a short call then costs one sync, not three. A disk that has been
quick for TRUSTED syncs in a row is waited for in the loop's own thread: the way to another one and back costs several times as much.
Beside a finished segment stands what it holds (trajectory/contents.py); one that a killed shard left unfinished has nothing beside it.
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from gyre_hpc.clock import monotonic_s
from gyre_hpc.protocol.journal import CallBegin, Delivered, Record, execution_of, marks_of
from gyre_hpc.shell.journal_files import records_in, segments
from gyre_hpc.shell.log import as_storage_error
from gyre_hpc.shell.timers import after
from gyre_hpc.trajectory.contents import SUFFIX, Contents, encode
from gyre_hpc.trajectory.segment import frame, header
from gyre_hpc.whole_file import write_whole

Done = Callable[[Exception | None], None]
PATIENT = (CallBegin, Delivered)
"""No answer and no delta leaves when these are durable."""
GROUP_S = 0.005
QUICK_S = 0.0005
TRUSTED = 128
"""One slow sync, and as many quick ones are needed again."""


class _Waiting(NamedTuple):
    framed: bytes
    execution: str
    marks: int
    done: Done


def each_of_journal(folder: Path, shard: str, attempt: int) -> Iterator[Record]:
    """Every whole record, in order; no more than a segment is in memory. Raises DamagedSegment for damage that is not a torn end."""
    return (record for path in segments(folder, shard, attempt) for record in records_in(path))


def read_journal(folder: Path, shard: str, attempt: int) -> tuple[Record, ...]:
    """All of them. Raises as each_of_journal."""
    return tuple(each_of_journal(folder, shard, attempt))


class JournalWriter:
    """Has MachineLog's surface: append(record, done), close()."""

    def __init__(self, folder: Path, shard: str, attempt: int, *, fsync: bool = True, segment_bytes: int = 64 << 20) -> None:
        self._folder, self._stem = folder, f"{shard}-{attempt}"
        self._fsync, self._segment_bytes = fsync, segment_bytes
        known = segments(folder, shard, attempt)
        self._segment = int(known[-1].stem.rpartition("-")[2]) + 1 if known else 0
        self._fd = -1
        self._size = 0
        self._marks: dict[str, int] = {}
        """What the segment says of which executions."""
        self._waiting: list[_Waiting] = []
        self._is_urgent = False
        """Somebody waits for one of them."""
        self._quick = 0
        """Syncs in a row that took less than QUICK_S."""
        self._later: asyncio.TimerHandle | None = None
        self._batch: list[_Waiting] = []
        """What is being written."""
        self._is_busy = False
        self._has_failed = False
        """What was written last could not be, and nobody was told yet."""
        self._jobs: SimpleQueue[list[_Waiting] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._loop = asyncio.get_running_loop()

    def append(self, record: Record, done: Done) -> None:
        """Write `record`; `done(None)` once durable, `done(error)` if it could not be written."""
        self._waiting.append(_Waiting(frame(record), execution_of(record), marks_of(record), done))
        if self._fsync and isinstance(record, PATIENT):
            self._wait_for_company()
        else:
            self._hurry()

    def close(self) -> None:
        """Wait for the write under way, write what waited for company, and close the file."""
        if self._later is not None:
            self._later.cancel()
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
        waiting, self._waiting, self._is_urgent = self._waiting, [], False
        if waiting and not self._has_failed:
            # A full disk loses them as a crash would.
            with contextlib.suppress(OSError):
                self._write(waiting)
        self._finish_segment()

    def _hurry(self) -> None:
        self._is_urgent = True
        if not self._is_busy:
            self._is_busy = True
            # What else this turn of the loop brings goes with it.
            self._loop.call_soon(self._next)

    def _wait_for_company(self) -> None:
        if self._later is None and not self._is_busy:
            self._later = after(GROUP_S, self._hurry)

    def _next(self) -> None:
        """Write what waits, if it is urgent."""
        if not (self._is_urgent and self._waiting):
            self._is_busy = self._is_urgent = False
            if self._waiting:
                self._wait_for_company()
            return
        if self._later is not None:
            self._later.cancel()
        self._batch, self._waiting, self._is_urgent, self._later = self._waiting, [], False, None
        if self._fsync and self._quick < TRUSTED:
            self._ask_thread(self._batch)
        else:
            self._written(self._outcome(self._batch))

    def _written(self, outcome: Exception | None) -> None:
        batch, self._batch, self._has_failed = self._batch, [], False
        if outcome is not None:
            # What waits behind must not become durable before what just failed.
            batch, self._waiting, self._is_urgent = batch + self._waiting, [], False
        self._loop.call_soon(self._next)
        for one in batch:
            one.done(outcome)

    def _ask_thread(self, batch: list[_Waiting]) -> None:
        """A thread and a queue of our own: an executor's futures cost several times as much."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="journal", daemon=True)
            self._thread.start()
        self._jobs.put(batch)

    def _work(self) -> None:
        while (batch := self._jobs.get()) is not None:
            outcome = self._outcome(batch)
            if self._loop.is_closed():
                return
            self._loop.call_soon_threadsafe(self._written, outcome)

    def _outcome(self, batch: list[_Waiting]) -> Exception | None:
        try:
            self._write(batch)
        except OSError as error:
            self._has_failed = True
            return as_storage_error(error)
        return None

    def _write(self, batch: list[_Waiting]) -> None:
        data = b"".join([one.framed for one in batch])
        if self._fd < 0 or self._size >= self._segment_bytes:
            self._begin_segment()
        try:
            _write_all(self._fd, data)
            if self._fsync:
                begin = monotonic_s()
                os.fdatasync(self._fd)
                self._quick = self._quick + 1 if monotonic_s() - begin < QUICK_S else 0
        except OSError:
            self._quick = 0
            self._cut_off()
            raise
        self._size += len(data)
        for one in batch:
            self._marks[one.execution] = self._marks.get(one.execution, 0) | one.marks

    def _cut_off(self) -> None:
        """Drop what a failed write left behind. Where even that fails, go on in a new segment: readers skip what they know."""
        try:
            os.ftruncate(self._fd, self._size)
            os.lseek(self._fd, self._size, os.SEEK_SET)
        except OSError:
            fd, self._fd = self._fd, -1
            with contextlib.suppress(OSError):
                os.close(fd)

    def _finish_segment(self) -> None:
        """Whoever reads it later need not look for executions that it does not hold."""
        if self._fd < 0:
            return
        fd, self._fd = self._fd, -1
        os.close(fd)
        # Without them the segment is read.
        with contextlib.suppress(OSError):
            write_whole(self._path(self._segment - 1).with_suffix(SUFFIX), encode(Contents(self._size, self._marks)))

    def _path(self, segment: int) -> Path:
        return self._folder / f"{self._stem}-{segment:06d}.gyj"

    def _begin_segment(self) -> None:
        self._finish_segment()
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._path(self._segment)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._segment += 1  # now: a folder that lets nothing go keeps the name
        try:
            _write_all(fd, header())
            if self._fsync:
                os.fdatasync(fd)
                _sync_folder(self._folder)
        except OSError:
            with contextlib.suppress(OSError):
                path.unlink()
            with contextlib.suppress(OSError):
                os.close(fd)
            raise
        self._fd, self._size, self._marks = fd, len(header()), {}


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _sync_folder(folder: Path) -> None:
    """The name of a new file is durable only with its folder."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
