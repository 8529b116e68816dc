"""What a finished segment holds stands beside it; readers of a few executions look into no other segments."""

import struct
import zlib
from pathlib import Path

import msgspec
import pytest

from gyre_hpc.gateway.earlier import read_earlier
from gyre_hpc.gateway.journal_writer import read_journal
from gyre_hpc.protocol.journal import CALLS, ENDED, Delivered, ExecutionEnd, Record, TakenUp
from gyre_hpc.shell.journal_files import contents_of, records_in, written_contents
from gyre_hpc.trajectory.contents import FORMAT, MAGIC, SUFFIX, Contents, decode, encode
from gyre_hpc.trajectory.segment import DamagedSegment
from tests.fakes.journal_segments import spoil, write

SHARDS = ("gateway-0",)
OVER, OPEN = "train-0-0-0", "train-0-0-1"


def said(execution: str, num: int = 3) -> list[Record]:
    return [Delivered(f"{execution}/{number}", float(number)) for number in range(num)]


def test_what_stands_beside_a_finished_segment_is_what_a_look_into_it_finds(tmp_path: Path) -> None:
    paths = write(tmp_path, *said(OVER), ExecutionEnd(OVER, 9.0), *said(OPEN), TakenUp("train-0-0-2", 1, 9.0), segment_bytes=100)
    assert len(paths) > 2
    for path in paths:
        written = written_contents(path)
        path.with_suffix(SUFFIX).unlink()
        assert written is not None and written == contents_of(path)
    together: dict[str, int] = {}
    for path in paths:
        for execution, marks in contents_of(path).marks.items():
            together[execution] = together.get(execution, 0) | marks
    assert together == {OVER: CALLS | ENDED, OPEN: CALLS, "train-0-0-2": 0}


def test_contents_that_are_damaged_or_of_another_segment_are_not_believed(tmp_path: Path) -> None:
    whole = encode(Contents(77, {OVER: CALLS}))
    assert decode(whole) == Contents(77, {OVER: CALLS})
    for damaged in (b"", whole[:-1], whole + b"x", whole[:9] + b"\xff" + whole[10:], whole[:-2] + b"zz", b"X" + whole[1:]):
        assert decode(damaged) is None
    (path,) = write(tmp_path, *said(OPEN))
    path.with_suffix(SUFFIX).write_bytes(whole)
    assert contents_of(path).marks == {OPEN: CALLS}


def test_contents_of_another_shape_or_that_nobody_can_read_are_as_none(tmp_path: Path) -> None:
    (path,) = write(tmp_path, *said(OPEN))
    beside = path.with_suffix(SUFFIX)
    for payload in (msgspec.msgpack.encode({"size": "77", "marks": {}}), msgspec.msgpack.encode([1]), b"\xc1"):
        beside.write_bytes(MAGIC + struct.pack("<III", FORMAT, len(payload), zlib.crc32(payload)) + payload)
        assert written_contents(path) is None
    beside.unlink()
    beside.mkdir()
    assert contents_of(path).marks == {OPEN: CALLS}


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_shard_is_told_of_those_who_are_not_over(tmp_path: Path, is_killed: bool) -> None:
    """Over as the newest attempt that knows them says."""
    write(tmp_path, *said(OVER), *said(OPEN), ExecutionEnd(OVER, 9.0), is_killed=is_killed)
    write(tmp_path, TakenUp("train-0-0-2", 1, 9.0), *said("train-0-0-2"), attempt=2, is_killed=is_killed)
    write(tmp_path, ExecutionEnd("train-0-0-2", 9.0), attempt=10, is_killed=is_killed)
    assert [one.execution for one in read_earlier(tmp_path, "gateway-0", SHARDS, 3)] == [OPEN, "train-0-0-2"]
    (one,) = read_earlier(tmp_path, "gateway-0", SHARDS, 11)
    assert (one.execution, one.attempts, list(one.records)) == (OPEN, (1,), said(OPEN))


def test_segments_of_executions_that_are_over_are_not_read(tmp_path: Path) -> None:
    first, *_ = write(tmp_path, *said(OVER, 20), ExecutionEnd(OVER, 9.0), attempt=1)
    write(tmp_path, *said(OPEN), attempt=2)
    spoil(first)
    assert [one.execution for one in read_earlier(tmp_path, "gateway-0", SHARDS, 3)] == [OPEN]
    first.with_suffix(SUFFIX).unlink()
    with pytest.raises(DamagedSegment):
        read_earlier(tmp_path, "gateway-0", SHARDS, 3)


def test_only_the_records_of_those_who_are_wanted_are_read(tmp_path: Path) -> None:
    (path,) = write(tmp_path, *said(OVER), *said(OPEN), ExecutionEnd(OVER, 9.0))
    assert list(records_in(path, {OPEN}.__contains__)) == said(OPEN)
    assert tuple(records_in(path)) == read_journal(tmp_path, "gateway-0", 1)
