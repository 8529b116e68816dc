"""Python stacks of processes that are asked for them."""

import subprocess
import sys
from pathlib import Path

from gyre_hpc.shell.stacks import ask
from tests.fakes.live_run import wait_for

HOLDS_THE_LOCK = """
import ctypes, sys, threading
from pathlib import Path
from gyre_hpc.shell.stacks import write_when_asked

def stands_still():
    ctypes.PyDLL(None).sleep(1000)  # in C, with the interpreter's lock

def waits_for_the_lock():
    print("there", flush=True)
    stands_still()

write_when_asked(Path(sys.argv[1]))
threading.Thread(target=waits_for_the_lock).start()
"""
ENDS = "import sys; from pathlib import Path; from gyre_hpc.shell.stacks import write_when_asked; write_when_asked(Path(sys.argv[1]))"
SLEEPS = "import time; print('there', flush=True); time.sleep(1000)"


def start(program: str, *args: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", program, *args], stdout=subprocess.PIPE, text=True)


def stacks(pid: int, path: Path) -> str:
    writing = ask(pid)
    assert writing is not None
    wait_for(writing.is_over, "the end of the stacks")
    return path.read_text()


def test_a_process_that_keeps_the_interpreters_lock_in_c_tells_where(tmp_path: Path):
    path = tmp_path / "logs" / "one.stacks"
    with start(HOLDS_THE_LOCK, str(path)) as process:
        assert process.stdout is not None and process.stdout.readline() == "there\n"
        try:
            # The first time it may not have come so far yet.
            wait_for(lambda: "in stands_still" in stacks(process.pid, path), "stacks of a process that stands still")
            assert "in waits_for_the_lock" in path.read_text()
        finally:
            process.kill()


def test_who_does_not_listen_is_not_asked_and_lives_on():
    with start(SLEEPS) as process:
        assert process.stdout is not None and process.stdout.readline() == "there\n"
        assert not ask(process.pid)
        process.terminate()
        assert process.wait() == -15
    assert not ask(process.pid), "gone"


def test_a_file_that_stayed_empty_goes_with_its_process(tmp_path: Path):
    with start(ENDS, str(tmp_path / "one.stacks")) as process:
        assert process.wait() == 0
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_ends_nobody(tmp_path: Path):
    (tmp_path / "file").touch()
    with start(ENDS, str(tmp_path / "file" / "one.stacks")) as process:
        assert process.wait() == 0
