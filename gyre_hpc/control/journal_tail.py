"""What the journal holds of which execution: of all shards and attempts, as it grows. Evaluation is never trained on: left out.

Kept are places in files, not records: those are read when somebody asks for an execution. A segment that was finished before it was first
seen is not even looked into before that (trajectory/contents.py). So memory follows the executions that are not consumed, and their number
of records. Each byte is looked at once, and read again once for an execution that is trained on.
"""

import os
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gyre_hpc.protocol.journal import CALLS, ENDED, Record
from gyre_hpc.shell.journal_files import written_contents
from gyre_hpc.trajectory.base import Call
from gyre_hpc.trajectory.fold import calls_of
from gyre_hpc.trajectory.segment import HEADER_SIZE, attempt_of, header, read_heads, read_record


@dataclass(kw_only=True, slots=True)
class _Held:
    """Where the records of one execution are."""

    places: dict[Path, "array[int]"] = field(default_factory=dict)
    """Segment -> start and end of each of its frames."""
    unseen: set[Path] = field(default_factory=set)
    """Segments that hold some and were not looked into."""
    marks: dict[int, int] = field(default_factory=dict)
    """Attempt -> what it says of the execution."""


class JournalTail:
    """One thread at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[Path, int] = {}
        self._held: dict[str, _Held] = {}

    @property
    def num_held(self) -> int:
        """Executions that something is held of."""
        return len(self._held)

    def poll(self) -> None:
        """Take what was written since the last poll. Raises DamagedSegment, UserError for a newer format."""
        for path in sorted(self._folder.glob("*.gyj")):
            if path not in self._offsets and (contents := written_contents(path)) is not None:
                self._offsets[path] = contents.size
                for execution, marks in contents.marks.items():
                    if _may_be_trained_on(execution):
                        self._mark(execution, path, marks).unseen.add(path)
            else:
                self._poll_segment(path)

    def has_calls(self, execution: str) -> bool:
        """Some record of a call of it."""
        held = self._held.get(execution)
        return held is not None and any(marks & CALLS for marks in held.marks.values())

    def has_ended(self, execution: str) -> bool:
        """Whether its shard takes no more calls of it, in the newest attempt that knows it."""
        held = self._held.get(execution)
        return held is not None and bool(held.marks[max(held.marks)] & ENDED)

    def calls(self, execution: str) -> list[Call]:
        """Its finished calls in order of arrival. Raises DamagedCall, DamagedSegment."""
        held = self._held.get(execution)
        if held is None:
            return []
        for path in sorted(held.unseen):
            self._look_into(path)
        by_attempt: dict[int, list[Record]] = {}
        for path, places in sorted(held.places.items()):
            by_attempt.setdefault(attempt_of(path), []).extend(_read(path, places))
        return calls_of(by_attempt)

    def forget(self, execution: str) -> None:
        """It was consumed."""
        self._held.pop(execution, None)

    def _poll_segment(self, path: Path) -> None:
        offset = self._offsets.get(path, 0)
        if path.stat().st_size <= offset:
            return
        self._offsets[path] = self._take(path, offset, _may_be_trained_on)

    def _look_into(self, path: Path) -> None:
        """A finished segment, for all who are held: nobody looks into it again."""
        waiting = {execution: held for execution, held in self._held.items() if path in held.unseen}
        self._take(path, 0, waiting.__contains__)
        for held in waiting.values():
            held.unseen.discard(path)

    def _take(self, path: Path, offset: int, is_wanted: Callable[[str], bool]) -> int:
        """Places of all records from `offset` on; the offset to go on from."""
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read()
        # read_heads counts from the first byte of a segment; its header was checked with the first piece.
        skipped = offset - HEADER_SIZE if offset else 0
        heads, end = read_heads(header() + data if offset else data)
        for execution, marks, start, behind in heads:
            if is_wanted(execution):
                places = self._mark(execution, path, marks).places
                places.setdefault(path, array("Q")).extend((start + skipped, behind + skipped))
        return end + skipped if end else 0

    def _mark(self, execution: str, path: Path, marks: int) -> _Held:
        held = self._held.get(execution)
        if held is None:
            held = self._held[execution] = _Held()
        attempt = attempt_of(path)
        held.marks[attempt] = held.marks.get(attempt, 0) | marks
        return held


def _may_be_trained_on(execution: str) -> bool:
    return not execution.startswith("eval-")


def _read(path: Path, places: "array[int]") -> list[Record]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return [read_record(os.pread(fd, end - start, start)) for start, end in zip(places[::2], places[1::2], strict=True)]
    finally:
        os.close(fd)
