"""Segments of a run's journal as files: whose records are where, and the records of those who are asked for.

A segment that was finished has its contents beside it, so that none is read for executions that are over.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from gyre_hpc.protocol.journal import Record
from gyre_hpc.trajectory import contents
from gyre_hpc.trajectory.contents import SUFFIX, Contents
from gyre_hpc.trajectory.segment import each_record, read_heads


def segments(folder: Path, shard: str, attempt: int) -> list[Path]:
    """Segments of this shard and attempt, oldest first."""
    return sorted(folder.glob(f"{shard}-{attempt}-*.gyj"))


def contents_of(path: Path) -> Contents:
    """Of a segment; read from it where nobody wrote them down. Raises DamagedSegment, UserError for a newer format."""
    written = written_contents(path)
    if written is not None:
        return written
    heads, end = read_heads(path.read_bytes())
    marks: dict[str, int] = {}
    for execution, mark, _, _ in heads:
        marks[execution] = marks.get(execution, 0) | mark
    return Contents(end, marks)


def written_contents(path: Path) -> Contents | None:
    """As its writer left them; None: it did not, nobody can read them, or the segment is not what it was then."""
    try:
        found = contents.decode(path.with_suffix(SUFFIX).read_bytes())
    except OSError:  # the segment says the same
        return None
    return found if found is not None and found.size == path.stat().st_size else None


def records_in(path: Path, is_wanted: Callable[[str], bool] | None = None) -> Iterator[Record]:
    """Whole records, in order; of the executions that are wanted. Raises as contents_of."""
    return each_record(path.read_bytes(), is_wanted)
