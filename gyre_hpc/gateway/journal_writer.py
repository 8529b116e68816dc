"""The one writer of a shard's journal: group commit, segments, and a failed write that fails everything behind it too.

File names: journal/<shard>-<attempt>-<segment>.gyj. Each start of the shard begins a new segment; nothing is appended to a
file that may end in a torn record. Records that wait while the disk works are written together and share one fdatasync; those
nobody waits for (PATIENT) wait GROUP_S for one they can share: a short call then costs one sync, not three. A disk that has been
quick for TRUSTED syncs in a row is waited for in the loop's own thread: the way to another one and back costs several times as much.
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

from gyre_hpc.clock import monotonic_s
from gyre_hpc.protocol.journal import CallBegin, Delivered, Record
from gyre_hpc.shell.log import as_storage_error
from gyre_hpc.shell.timers import after
from gyre_hpc.trajectory.segment import frame, header, read_records

Done = Callable[[Exception | None], None]
PATIENT = (CallBegin, Delivered)
"""No answer and no delta leaves when these are durable."""
GROUP_S = 0.005
QUICK_S = 0.0005
TRUSTED = 128
"""One slow sync, and as many quick ones are needed again."""


def segments(folder: Path, shard: str, attempt: int) -> list[Path]:
    """Segments of this shard and attempt, oldest first."""
    return sorted(folder.glob(f"{shard}-{attempt}-*.gyj"))


def read_journal(folder: Path, shard: str, attempt: int) -> tuple[Record, ...]:
    """Every whole record, in order. Raises DamagedSegment for damage that is not a torn end."""
    records: list[Record] = []
    for path in segments(folder, shard, attempt):
        records += read_records(path.read_bytes())[0]
    return tuple(records)


class JournalWriter:
    """Has MachineLog's surface: append(record, done), close()."""

    def __init__(self, folder: Path, shard: str, attempt: int, *, fsync: bool = True, segment_bytes: int = 64 << 20) -> None:
        self._folder, self._stem = folder, f"{shard}-{attempt}"
        self._fsync, self._segment_bytes = fsync, segment_bytes
        known = segments(folder, shard, attempt)
        self._segment = int(known[-1].stem.rpartition("-")[2]) + 1 if known else 0
        self._fd = -1
        self._size = 0
        self._waiting: list[tuple[bytes, Done]] = []
        self._is_urgent = False
        """Somebody waits for one of them."""
        self._quick = 0
        """Syncs in a row that took less than QUICK_S."""
        self._later: asyncio.TimerHandle | None = None
        self._batch: list[tuple[bytes, Done]] = []
        """What is being written."""
        self._is_busy = False
        self._has_failed = False
        """What was written last could not be, and nobody was told yet."""
        self._jobs: SimpleQueue[bytes | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._loop = asyncio.get_running_loop()

    def append(self, record: Record, done: Done) -> None:
        """Write `record`; `done(None)` once durable, `done(error)` if it could not be written."""
        self._waiting.append((frame(record), done))
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
                self._write(b"".join(framed for framed, _ in waiting))
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

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
        data = b"".join(framed for framed, _ in self._batch)
        if self._fsync and self._quick < TRUSTED:
            self._ask_thread(data)
        else:
            self._written(self._outcome(data))

    def _written(self, outcome: Exception | None) -> None:
        batch, self._batch, self._has_failed = self._batch, [], False
        if outcome is not None:
            # What waits behind must not become durable before what just failed.
            batch, self._waiting, self._is_urgent = batch + self._waiting, [], False
        self._loop.call_soon(self._next)
        for _, done in batch:
            done(outcome)

    def _ask_thread(self, data: bytes) -> None:
        """A thread and a queue of our own: an executor's futures cost several times as much."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="journal", daemon=True)
            self._thread.start()
        self._jobs.put(data)

    def _work(self) -> None:
        while (data := self._jobs.get()) is not None:
            outcome = self._outcome(data)
            if self._loop.is_closed():
                return
            self._loop.call_soon_threadsafe(self._written, outcome)

    def _outcome(self, data: bytes) -> Exception | None:
        try:
            self._write(data)
        except OSError as error:
            self._has_failed = True
            return as_storage_error(error)
        return None

    def _write(self, data: bytes) -> None:
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

    def _cut_off(self) -> None:
        """Drop what a failed write left behind. Where even that fails, go on in a new segment: readers skip what they know."""
        try:
            os.ftruncate(self._fd, self._size)
            os.lseek(self._fd, self._size, os.SEEK_SET)
        except OSError:
            fd, self._fd = self._fd, -1
            with contextlib.suppress(OSError):
                os.close(fd)

    def _begin_segment(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{self._stem}-{self._segment:06d}.gyj"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            _write_all(fd, header())
            if self._fsync:
                os.fdatasync(fd)
                _sync_folder(self._folder)
        except OSError:
            os.close(fd)
            path.unlink()
            raise
        self._segment += 1
        self._fd, self._size = fd, len(header())


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
