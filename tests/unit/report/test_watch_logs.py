"""Logs that are followed while they are cut, and cut while they are written."""

import os
from pathlib import Path

import pytest

from gyre_hpc.report.watch.log_tail import LogTail, wanted_by
from gyre_hpc.supervisor.log_files import KEPT, bound, open_log


def write(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_the_newest_lines_come_first_and_then_what_is_written(tmp_path: Path):
    log = tmp_path / "cell-0.log"
    write(log, "".join(f"line {n}\n" for n in range(1000)) + "half")
    tail = LogTail(tmp_path)
    assert list(tail.last(2)) == [("cell-0", "line 998"), ("cell-0", "line 999")]
    assert not list(LogTail(tmp_path).last(0))
    write(log, " and whole\nmore\n")
    write(tmp_path / "late.log", "new file\n")
    assert list(tail.poll()) == [("cell-0", "half and whole"), ("cell-0", "more"), ("late", "new file")]
    write(log, "never ended")
    assert list(tail.poll()) == []
    assert list(tail.rest()) == [("cell-0", "never ended")]


def test_no_line_is_missed_or_doubled_when_a_log_is_cut(tmp_path: Path):
    log = tmp_path / "cell-0.log"
    tail = LogTail(tmp_path)
    with open_log(log) as child:  # it keeps the file open, as a child does
        seen = []
        for n in range(30):
            child.write(f"line {n}\n".encode())
            child.flush()
            if n % 7 == 3:
                seen += [line for _, line in tail.poll()]
            if n % 10 == 9:
                bound(log, largest=10)
        seen += [line for _, line in tail.poll()]
    assert seen == [f"line {n}" for n in range(30)]


def test_a_log_is_bounded_and_its_older_parts_are_kept_in_order(tmp_path: Path):
    log = tmp_path / "cell-0.log"
    with open_log(log) as child:
        for n in range(KEPT + 3):
            child.write(f"part {n}\n".encode())
            child.flush()
            bound(log, largest=3)
        child.write(b"newest\n")
    parts = [log.with_name(f"cell-0.log.{number}").read_text() for number in range(1, KEPT + 1)]
    assert parts == ["part 5\n", "part 4\n", "part 3\n"]
    assert log.read_bytes() == b"newest\n"
    assert not log.with_name(f"cell-0.log.{KEPT + 1}").exists()


def test_a_small_log_is_left_alone_and_one_that_is_not_there_is_nothing(tmp_path: Path):
    log = tmp_path / "cell-0.log"
    bound(log)
    write(log, "x\n")
    before = os.stat(log).st_ino
    bound(log)
    assert os.stat(log).st_ino == before and log.read_text() == "x\n" and list(tmp_path.iterdir()) == [log]


def test_a_disk_that_takes_no_copy_does_not_stay_full(tmp_path: Path):
    log = tmp_path / "cell-0.log"
    write(log, "much\n" * 10)
    (tmp_path / "cell-0.log.1").mkdir()  # nothing can be written there
    (tmp_path / "cell-0.log.2").mkdir()
    (tmp_path / "cell-0.log.2" / "full").touch()  # and it cannot be moved away
    bound(log, largest=3)
    assert log.read_text() == ""


@pytest.mark.parametrize(
    ("cell", "process", "names"),
    [
        (None, "", {"cell-1", "cell-1-part-1", "cell-1-sglang", "cell-10", "gateway-0"}),
        (1, "", {"cell-1", "cell-1-part-1", "cell-1-sglang"}),
        (None, "gateway-0", {"gateway-0"}),
    ],
)
def test_a_cell_is_its_parts_and_its_server_and_no_other_cell(cell: int | None, process: str, names: set[str]):
    wanted = wanted_by(cell, process)
    assert {name for name in ("cell-1", "cell-1-part-1", "cell-1-sglang", "cell-10", "gateway-0") if wanted(name)} == names
