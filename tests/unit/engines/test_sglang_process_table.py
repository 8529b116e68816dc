"""Which processes are a server's; and the log that outlives what it tells of."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gyre_hpc.engines.sglang import process_table
from gyre_hpc.engines.sglang.bounded_log import TAIL_BYTES, BoundedLog
from gyre_hpc.engines.sglang.process_table import MARK, marked
from gyre_hpc.observability import process_tree
from gyre_hpc.observability.process_tree import identify
from tests.fakes.server_stage import process_of


def test_marked_processes_are_those_of_that_very_folder() -> None:
    with subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          env={MARK: "/here/1"}) as child:  # fmt: skip
        assert child.stdout is not None
        child.stdout.readline()
        assert marked("/here/1") == [process_of(child.pid)] and marked("/here") == []
        child.communicate(b"\n")


def test_processes_that_others_keep_to_themselves_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden(path: str, *args: Any, **more: Any) -> Any:
        if path == f"/proc/{os.getppid()}/stat":
            raise PermissionError(path)
        return open(path, *args, **more)

    for room in (process_table, process_tree):
        monkeypatch.setattr(room, "open", hidden, raising=False)
    assert identify(os.getppid()) is None and marked("/here") == []


def test_a_full_disk_takes_nothing_from_the_last_words() -> None:
    log = BoundedLog(Path("/dev/full"), 1000)
    log.write(b"no space\n" * 10)
    log.write(b"the end\n")
    assert log.tail().endswith("no space\nthe end")
    log.close()


def test_a_log_that_could_not_turn_goes_on_when_it_can(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "log", 10)
    log.write(b"8 bytes.")
    (tmp_path / "log.1").mkdir()
    log.write(b"lost")
    log.write(b"!")
    (tmp_path / "log.1").rmdir()
    log.write(b"second")
    log.close()
    assert ((tmp_path / "log.1").read_bytes(), (tmp_path / "log").read_bytes()) == (b"8 bytes.", b"second")
    assert (tmp_path / "log").stat().st_mode & 0o077 == 0, "it may show the key"


def test_the_tail_begins_with_a_whole_line(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "log", 1 << 20)
    for number in range(TAIL_BYTES):
        log.write(b"%d end\n" % number)
    lines = log.tail().splitlines()
    assert lines[-1] == f"{TAIL_BYTES - 1} end" and len(lines) > 100
    assert [int(line.split()[0]) for line in lines] == list(range(TAIL_BYTES - len(lines), TAIL_BYTES))
    log.close()


def test_a_log_that_begins_anew_keeps_the_one_that_may_say_why(tmp_path: Path):
    for words in (b"first", b"second", b"third"):
        log = BoundedLog(tmp_path / "log", 1 << 20)
        log.write(words)
        log.close()
    assert ((tmp_path / "log.1").read_bytes(), (tmp_path / "log").read_bytes()) == (b"second", b"third")
