"""Framing of journal segments: bytes <-> records. One writer appends; readers tail the file or read it again after a crash.

    segment = magic "GYREJRNL" (8 bytes), u32 format number, then frames
    frame   = u32 length of the payload, u32 CRC-32 of the payload, payload (msgpack, protocol/journal.py)

Integers are little-endian. Invariants (each has a test):
  - what was framed is read back, whatever pieces the bytes arrive in;
  - a torn last record (the writer died, or has not finished) is skipped: the reader stops before it and may come again;
  - damage with whole records behind it is never taken for a torn end, a flipped bit in a length included;
  - a segment of a newer format is refused.
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import NamedTuple, TypeVar

import msgspec

from gyre_hpc.errors import UserError
from gyre_hpc.protocol import journal

Found = TypeVar("Found")
MAGIC = b"GYREJRNL"
FORMAT = 4
"""1 had no stored answers and no malformed calls among CallEnd.tool_calls; 2 had stored answers with all their messages; 3 had one life of
each execution."""
HEADER_SIZE = len(MAGIC) + 4
_FRAME = struct.Struct("<II")
_TAG = b"\xa4type"
"""The tag of the union, as msgspec writes it: every payload goes on with it after the head of its map."""
_MAP_HEADS = (1, 3)
"""Bytes of a map's head in msgpack: up to 15 fields, and more."""


class DamagedSegment(ValueError):
    """Bytes that are neither a record nor a torn end. `offset` is where the damage begins."""

    def __init__(self, offset: int, reason: str) -> None:
        self.offset = offset
        super().__init__(f"journal segment damaged at byte {offset}: {reason}")


def attempt_of(path: PurePath) -> int:
    """The attempt that wrote a segment: `<shard>-<attempt>-<segment>.gyj`."""
    return int(path.stem.rsplit("-", 2)[1])


def header() -> bytes:
    """The first bytes of every segment."""
    return MAGIC + struct.pack("<I", FORMAT)


def frame(record: journal.Record) -> bytes:
    """One record with its length and CRC."""
    payload = journal.encode(record)
    return _FRAME.pack(len(payload), zlib.crc32(payload)) + payload


class Head(NamedTuple):
    """Where a record stands in its segment, and what it is about."""

    execution: str
    marks: int
    """journal.CALLS for a record of a call, journal.ENDED for the end of an execution."""
    start: int
    end: int
    """Offset behind it."""


def read_records(data: bytes | bytearray | memoryview, offset: int = 0) -> tuple[list[journal.Record], int]:
    """All whole records of a segment's bytes from `offset` on, and the offset to go on from.

    `data` is the segment from its first byte; offset 0 checks the header. Raises UserError for a newer format and
    DamagedSegment for anything that was never written like this.
    """
    records: list[journal.Record] = []
    end = offset
    for payload, start, behind in _frames(memoryview(data), offset):
        end = behind
        if payload:
            records.append(_decoded(payload, start, journal.decode))
    return records, end


def read_heads(data: bytes | bytearray | memoryview, offset: int = 0) -> tuple[list[Head], int]:
    """As read_records, a fraction of its time, for those who look for the records of a few executions."""
    heads: list[Head] = []
    end = offset
    for payload, start, behind in _frames(memoryview(data), offset):
        end = behind
        if payload:
            execution, marks = _decoded(payload, start, journal.decode_head)
            heads.append(Head(execution, marks, start, end))
    return heads, end


def each_record(data: bytes, is_wanted: Callable[[str], bool] | None = None) -> Iterator[journal.Record]:
    """As read_records, one by one; of the executions that are wanted."""
    for payload, start, _ in _frames(memoryview(data), 0):
        if payload and (is_wanted is None or is_wanted(_decoded(payload, start, journal.decode_head)[0])):
            yield _decoded(payload, start, journal.decode)


def read_record(data: bytes) -> journal.Record:
    """One record from the bytes between `start` and `end` of its Head. Raises DamagedSegment."""
    payload, _ = _next_frame(memoryview(data), 0)
    if payload is None:
        raise DamagedSegment(0, "no whole record where one was")
    return _decoded(payload, 0, journal.decode)


def _frames(view: memoryview, offset: int) -> Iterator[tuple[memoryview | None, int, int]]:
    """(payload, where its frame begins, offset behind it); None for the header."""
    if offset < HEADER_SIZE:
        if not _has_header(view):
            return
        offset = HEADER_SIZE
        yield None, 0, offset
    while True:
        payload, end = _next_frame(view, offset)
        if payload is None:
            return
        yield payload, offset, end
        offset = end


def _decoded(payload: memoryview, offset: int, decode: Callable[[memoryview], Found]) -> Found:
    try:
        return decode(payload)
    except msgspec.DecodeError as error:
        raise DamagedSegment(offset, f"the CRC fits but this is no record of format {FORMAT}: {error}") from error


def _has_header(view: memoryview) -> bool:
    found = bytes(view[: len(MAGIC)])
    if not MAGIC.startswith(found):
        raise DamagedSegment(0, f"begins with {found!r} instead of {MAGIC!r}: this is no journal segment")
    if len(view) < HEADER_SIZE:
        return False
    (number,) = struct.unpack_from("<I", view, len(MAGIC))
    if number > FORMAT:
        remedy = f"this installation reads journal formats up to {FORMAT}; use the gyre_hpc that wrote it, or a newer one"
        raise UserError("journal format", number, remedy)
    if number < 1:
        raise DamagedSegment(len(MAGIC), f"format number {number}")
    return True


def _next_frame(view: memoryview, offset: int) -> tuple[memoryview | None, int]:
    """(payload, offset behind it), or (None, offset) at the end or before a torn record."""
    size = len(view)
    if offset == size:
        return None, offset
    if size - offset >= _FRAME.size:
        length, crc = _FRAME.unpack_from(view, offset)
        end = offset + _FRAME.size + length
        if length and end <= size and zlib.crc32(payload := view[offset + _FRAME.size : end]) == crc:
            return payload, end
    later = _whole_frame_after(bytes(view[offset:]))
    if later is not None:
        raise DamagedSegment(offset, f"no whole record here, but one at byte {offset + later}")
    return None, offset


def _whole_frame_after(tail: bytes) -> int | None:
    """Where in `tail`, behind its first byte, a whole record stands; found by the tag every payload carries."""
    at = tail.find(_TAG)
    while at >= 0:
        for head in _MAP_HEADS:
            start = at - head - _FRAME.size
            if start > 0:
                length, crc = _FRAME.unpack_from(tail, start)
                payload = tail[at - head : at - head + length]
                if length and len(payload) == length and zlib.crc32(payload) == crc:
                    return start
        at = tail.find(_TAG, at + 1)
    return None
