"""What a finished segment holds of whom: those who look for the records of a few executions need not read the others' segments.

    contents = magic "GYRECONT" (8 bytes), u32 format number, u32 length of the payload, u32 CRC-32 of the payload, payload (msgpack)

Derived from the segment, and written after it: where it is missing, damaged or of another size of the segment, the segment is read.
"""

import struct
import zlib

import msgspec

MAGIC = b"GYRECONT"
FORMAT = 1
SUFFIX = ".contents"
_HEAD = struct.Struct("<III")


class Contents(msgspec.Struct, frozen=True):
    """Of one segment."""

    size: int
    """Bytes of the segment."""
    marks: dict[str, int]
    """Execution -> journal.CALLS | journal.ENDED, of all its records in the segment."""


def encode(contents: Contents) -> bytes:
    """Contents -> whole file."""
    payload = msgspec.msgpack.encode(contents)
    return MAGIC + _HEAD.pack(FORMAT, len(payload), zlib.crc32(payload)) + payload


def decode(data: bytes) -> Contents | None:
    """Inverse of encode; None for anything that it did not write."""
    start = len(MAGIC) + _HEAD.size
    if len(data) < start or data[: len(MAGIC)] != MAGIC:
        return None
    number, length, crc = _HEAD.unpack_from(data, len(MAGIC))
    payload = data[start:]
    if number != FORMAT or len(payload) != length or zlib.crc32(payload) != crc:
        return None
    try:
        return msgspec.msgpack.decode(payload, type=Contents)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
