"""Bytes of a segment <-> records."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.errors import UserError
from gyre_hpc.protocol import journal
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.journal import (
    CallBegin,
    CallEnd,
    CallProgress,
    Delivered,
    Echoed,
    ExecutionEnd,
    Forgotten,
    Sampling,
    Stored,
    VersionSpan,
)
from gyre_hpc.protocol.tensors import pack_floats, pack_ids
from gyre_hpc.trajectory.segment import FORMAT, HEADER_SIZE, MAGIC, DamagedSegment, frame, header, read_records

CALL = "train-0-0-0/0"
RECORDS: list[journal.Record] = [
    CallBegin(CALL, "train-0-0-0", None, pack_ids([1, 2]), "main", "", "root", Sampling(), {"temperature": 0.5}, "ab", 1.0),
    CallProgress(CALL, 0, pack_ids([7] * 90), pack_floats([-0.5] * 90), (VersionSpan(Version(0, 1), 0, 90),), Version(0, 1), "cell-0", 2.0),
    CallEnd(CALL, "stop", 90, 0, (), "ff", ("cell-0",), 0, 3.0),
    Delivered(CALL, 4.0),
    Stored(CALL, b"asked", b"answer", "train-0-0-0/1", b"{}", 3.5),
    Stored(CALL, b"asked", b"answer", base=b"x" * 16, echoes=(Echoed(b"", b"{}"), Echoed(b"y" * 16))),
    # More fields than fit into the shortest head of a map.
    CallBegin(
        CALL, "train-0-0-0", None, b"", "main", "t", "", Sampling(stop=("x",)), {}, "ab", 1.0, ("call",), "cd", True, "messages", True, True
    ),
    Forgotten(CALL, 4.5),
    ExecutionEnd("train-0-0-0", 5.0),
]
DATA = header() + b"".join(frame(record) for record in RECORDS)


@given(st.lists(st.integers(0, len(DATA)), max_size=8))
def test_records_are_read_back_whatever_pieces_the_bytes_arrive_in(cuts: list[int]) -> None:
    found, offset = [], 0
    for size in [*sorted(cuts), len(DATA)]:
        records, offset = read_records(DATA[:size], offset)
        found += records
    assert found == RECORDS
    assert offset == len(DATA)


@given(st.integers(0, len(DATA) - 1))
def test_a_torn_last_record_is_skipped(size: int) -> None:
    records, offset = read_records(DATA[:size])
    assert records == RECORDS[: len(records)]
    assert offset <= size
    assert read_records(DATA, offset)[0] == RECORDS[len(records) :]


def test_zeros_behind_the_last_record_are_a_torn_end() -> None:
    records, offset = read_records(DATA + bytes(4096))
    assert (records, offset) == (RECORDS, len(DATA))


@given(st.integers(HEADER_SIZE, len(DATA) - len(frame(RECORDS[-1])) - 1), st.integers(0, 7))
def test_a_flipped_bit_before_the_last_record_raises_with_its_offset(byte: int, bit: int) -> None:
    data = bytearray(DATA)
    data[byte] ^= 1 << bit
    with pytest.raises(DamagedSegment) as raised:
        read_records(data)
    assert HEADER_SIZE <= raised.value.offset <= byte
    assert str(raised.value.offset) in str(raised.value)


@pytest.mark.parametrize("place", range(len(RECORDS) - 1))
def test_damage_is_told_from_a_torn_end_by_any_kind_of_record_behind_it(place: int) -> None:
    data = bytearray(header() + frame(RECORDS[place]) + frame(RECORDS[place + 1]))
    data[HEADER_SIZE] ^= 1
    with pytest.raises(DamagedSegment):
        read_records(data)


def test_a_newer_format_is_refused_naming_both_numbers() -> None:
    newer = MAGIC + struct.pack("<I", FORMAT + 1) + DATA[HEADER_SIZE:]
    with pytest.raises(UserError, match=rf"{FORMAT + 1}.*up to {FORMAT}"):
        read_records(newer)


def test_a_file_of_another_kind_is_refused() -> None:
    with pytest.raises(DamagedSegment, match="no journal segment"):
        read_records(b"PK\x03\x04 something else")
