"""The process tree below a process, from /proc."""

import os
import signal
from collections.abc import Iterator

_PAGE = os.sysconf("SC_PAGE_SIZE")


def children(pid: int) -> list[int]:
    """Direct children of `pid`; empty if it is gone."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                found += map(int, file.read().split())
    except FileNotFoundError:
        return found if os.path.exists("/proc/self/task/" + str(os.getpid()) + "/children") else _children_by_scan(pid)
    except ProcessLookupError:
        return found
    return found


def _children_by_scan(pid: int) -> list[int]:
    """For kernels without task/*/children."""
    return [child for child, parent in _parents() if parent == pid]


def _parents() -> Iterator[tuple[int, int]]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    yield int(name), int(file.read().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue


def descendants(pid: int) -> list[int]:
    """Everything below `pid`, parents first."""
    found: list[int] = []
    frontier = children(pid)
    while frontier:
        found += frontier
        frontier = [child for parent in frontier for child in children(parent)]
    return found


def resident_bytes(pids: list[int]) -> int:
    """Sum of resident memory; pages they share count for each."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/statm") as file:
                total += int(file.read().split()[1]) * _PAGE
        except (FileNotFoundError, ProcessLookupError, IndexError):
            continue
    return total


def end_tree() -> None:
    """Kill everything below this process and reap it. Needs to be a subreaper: orphans come back to us.

    Stopping first keeps a fork bomb from growing while it is being killed.
    """
    me = os.getpid()
    while True:
        for sig in (signal.SIGSTOP, signal.SIGKILL):
            for pid in descendants(me):
                _signal(pid, sig)
        try:
            os.waitpid(-1, 0)
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return


def _signal(pid: int, sig: int) -> None:
    try:
        os.kill(pid, sig)
    except ProcessLookupError:
        return
