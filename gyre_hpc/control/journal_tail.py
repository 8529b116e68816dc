"""Reads the journal of all shards and attempts as it grows, each byte once. Evaluation is never trained on: left out."""

from pathlib import Path

from gyre_hpc.protocol.journal import execution_of
from gyre_hpc.trajectory.fold import JournalFold
from gyre_hpc.trajectory.segment import HEADER_SIZE, attempt_of, header, read_records


class JournalTail:
    """Whole records of every segment, folded. One thread at a time."""

    def __init__(self, folder: Path) -> None:
        self.fold = JournalFold()
        self._folder = folder
        self._offsets: dict[Path, int] = {}

    def poll(self) -> None:
        """Take what was written since the last poll. Raises DamagedSegment, UserError for a newer format."""
        for path in sorted(self._folder.glob("*.gyj")):
            self._poll_segment(path)

    def _poll_segment(self, path: Path) -> None:
        offset = self._offsets.get(path, 0)
        if path.stat().st_size <= offset:
            return
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read()
        # read_records counts from the first byte of a segment; its header was checked with the first piece.
        skipped = offset - HEADER_SIZE if offset else 0
        records, end = read_records(header() + data if offset else data)
        attempt = attempt_of(path)
        for record in records:
            if not execution_of(record).startswith("eval-"):
                self.fold.add(record, attempt)
        self._offsets[path] = end + skipped if end else 0
