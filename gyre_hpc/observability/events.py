"""Facts of a run as JSON lines: one file per process and attempt, one writer per file, merged by readers.

Invariants (each has a test):
  - a writer that started never raises into its caller: what could not be written is counted;
  - what was noted is in the file about FLUSH_S later, whether more is noted or not, as far as it takes writes;
  - a line torn by a crash is skipped by readers and never glued to the next one;
  - a reader that polls returns every whole line exactly once, by attempt and time within a poll, and each writer's in the order they were
    written: a clock that is set back while a run goes on puts no update before an earlier one.
Fields are plain JSON: ids and versions as text, times in seconds, shares as fractions.
"""

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gyre_hpc.clock import monotonic_s, unix_s
from gyre_hpc.protocol.identity import Version

FLUSH_BYTES = 32 << 10
FLUSH_S = 0.5
KEEP_BYTES = 4 << 20
"""What is kept in memory while the folder cannot be written; beyond it events are dropped and counted."""


class Event(msgspec.Struct, frozen=True):
    """One fact."""

    time: float
    """Unix seconds."""
    mono: float
    """Monotonic seconds of the writer's machine."""
    process: str
    attempt: int
    kind: str
    """One of kinds.KINDS."""
    fields: dict[str, Any] = {}


Later = Callable[[float, Callable[[], None]], None]
"""`later(seconds, call)`: once, from whatever thread. Raises RuntimeError when it cannot any more."""


class EventWriter:
    """The events of one process. Thread-safe. Without `later` each event is written at once. With it those of a burst are written together:
    by size, or FLUSH_S after the first of them; it is asked only while something waits."""

    def __init__(self, path: Path, process: str, attempt: int, later: Later | None = None) -> None:
        """Raises OSError if the file cannot be opened: a monitor that cannot start stops the run."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.process, self.attempt = process, attempt
        self.num_lost = 0
        """Events that were dropped."""
        self._later = later
        self._is_due = False
        """`later` was asked, and has not called yet."""
        self._encoder = msgspec.json.Encoder(enc_hook=str)
        self._lock = threading.Lock()
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        # An earlier incarnation may have died inside a line; an empty line is nothing to a reader.
        self._pending = bytearray(b"\n" if os.fstat(self._fd).st_size else b"")
        self._num_pending = 0
        self._flushed_at = monotonic_s()

    def note(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Record one fact that happened now. Never raises."""
        now = monotonic_s()
        event = Event(unix_s(), now, self.process, self.attempt, kind, {name: _plain(value) for name, value in fields.items()})
        try:
            line = self._encoder.encode(event)
        except (TypeError, ValueError):  # a field that JSON cannot hold, such as an integer beyond 64 bits
            line = self._encoder.encode(msgspec.structs.replace(event, fields={name: repr(value) for name, value in event.fields.items()}))
        with self._lock:
            self._pending += line + b"\n"
            self._num_pending += 1
            if self._later is None or len(self._pending) >= FLUSH_BYTES or now - self._flushed_at >= FLUSH_S:
                self._write()
            self._arm()

    def flush(self) -> None:
        """Hand everything to the operating system. Never raises."""
        with self._lock:
            self._write()

    def close(self) -> None:
        with self._lock:
            self._write()
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def _arm(self) -> None:
        """What is left, of a burst or by a disk that is full, gets its turn."""
        if self._later is None or self._is_due or not self._num_pending or self._fd < 0:
            return
        try:
            self._later(FLUSH_S, self._due)
            self._is_due = True
        except RuntimeError:  # the loop is gone, and the process with it soon
            self._write()

    def _due(self) -> None:
        with self._lock:
            self._is_due = False
            self._write()
            self._arm()

    def _write(self) -> None:
        self._flushed_at = monotonic_s()
        try:
            while self._pending:
                del self._pending[: os.write(self._fd, self._pending)]
            self._num_pending = 0
        except OSError:
            if len(self._pending) > KEEP_BYTES or self._fd < 0:
                self.num_lost += self._num_pending
                # A part of the first line may be in the file already.
                self._pending, self._num_pending = bytearray(b"\n"), 0


class EventReader:
    """All events of a run folder, again and again."""

    def __init__(self, folder: Path) -> None:
        self.num_torn = 0
        """Whole lines that were no events."""
        self._folder = folder
        self._offsets: dict[Path, int] = {}
        self._newest: dict[Path, float] = {}
        """The latest time that a file told so far: what follows in it is no earlier."""
        self._decoder = msgspec.json.Decoder(Event)

    def poll(self) -> list[Event]:
        """Events written since the last poll, in order; empty while the folder does not exist."""
        found: list[tuple[int, float, Event]] = []
        for path in sorted(self._folder.glob("*.jsonl")):
            offset = self._offsets.get(path, 0)
            with path.open("rb") as file:
                file.seek(offset)
                data = file.read()
            whole = data.rfind(b"\n") + 1
            self._offsets[path] = offset + whole
            for line in data[:whole].splitlines():
                event = self._event(line)
                if event is not None:
                    newest = self._newest[path] = max(event.time, self._newest.get(path, event.time))
                    found.append((event.attempt, newest, event))
        found.sort(key=lambda one: one[:2])
        return [event for _, _, event in found]

    def _event(self, line: bytes) -> Event | None:
        if not line.strip():
            return None
        try:
            return self._decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self.num_torn += 1
            return None


def read_events(folder: Path) -> list[Event]:
    """Every event of `folder`, by attempt and time."""
    return EventReader(folder).poll()


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Version) else value
