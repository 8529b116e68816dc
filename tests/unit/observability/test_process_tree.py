"""Who lives, and who is below whom."""

import os
import signal
import subprocess

import pytest

from gyre_hpc.observability import process_tree
from gyre_hpc.observability.process_tree import Process, descendants, identify, is_alive, kill
from tests.fakes.server_stage import bystander, process_of


def test_a_process_of_which_only_the_exit_status_is_left_is_not_alive() -> None:
    child = bystander()
    process = process_of(child.pid)
    assert is_alive(process)
    kill(process)
    # Ended, and not taken away yet.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(process) and identify(child.pid) is None
    assert child.wait() == -signal.SIGKILL


def test_a_later_process_of_the_same_pid_is_another() -> None:
    child = bystander()
    earlier = Process(child.pid, process_of(child.pid).born - 1)
    assert not is_alive(earlier)
    kill(earlier)
    assert is_alive(process_of(child.pid))
    child.kill()
    child.wait()


@pytest.mark.parametrize("by_scan", [False, True], ids=["children files", "scan"])
def test_descendants_are_found_over_sessions(by_scan: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if by_scan:
        monkeypatch.setattr(process_tree, "children", process_tree._children_by_scan)
    script = ["/bin/sh", "-c", "setsid sleep 1000 & echo $!; wait"]
    with subprocess.Popen(script, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        below = int(child.stdout.readline())
        assert descendants(child.pid) == [below] and {child.pid, below} <= set(descendants(os.getpid()))
        os.kill(below, signal.SIGKILL)
