"""Processes, from /proc: who lives, and who is below whom. Never by pid alone for long: pids are used again."""

import os
import signal
from typing import NamedTuple


class Process(NamedTuple):
    pid: int
    born: int
    """Clock ticks from the machine's boot to its start."""


def identify(pid: int) -> Process | None:
    """None: there is no such process, or only its exit status is left."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in "ZX" else Process(pid, int(fields[19]))


def is_alive(process: Process) -> bool:
    return identify(process.pid) == process


def children(pid: int) -> list[int]:
    """Direct children of `pid`, also those of which only the exit status is left; empty if it is gone."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                found += map(int, file.read().split())
    except FileNotFoundError:
        # The process is gone, or the kernel has no such files.
        return found if os.path.exists(f"/proc/self/task/{os.getpid()}/children") else _children_by_scan(pid)
    except ProcessLookupError:
        return found
    return found


def descendants(pid: int) -> list[int]:
    """Everything below `pid`, parents first."""
    found: list[int] = []
    frontier = children(pid)
    while frontier:
        found += frontier
        frontier = [child for parent in frontier for child in children(parent)]
    return found


def signal_quietly(pid: int, sig: int) -> None:
    """Nothing if it is gone."""
    try:
        os.kill(pid, sig)
    except ProcessLookupError:
        return


def kill(process: Process) -> None:
    """SIGKILL; nothing if it is gone."""
    if is_alive(process):
        signal_quietly(process.pid, signal.SIGKILL)


def _children_by_scan(pid: int) -> list[int]:
    stats = {int(name): _stat(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    return [child for child, fields in stats.items() if fields is not None and int(fields[1]) == pid]


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the state on."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].decode().split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        # The last: of another user, where /proc is mounted with hidepid=1.
        return None
