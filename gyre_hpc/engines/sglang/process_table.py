"""Processes, from /proc: who lives, who is below whom, who was started for a folder. Never by pid alone: pids are used again."""

import os
import signal
from typing import NamedTuple

MARK = "GYRE_SGLANG_FOLDER"
"""Environment variable of a keeper and of all that it starts: the folder they belong to."""


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


def descendants(pid: int) -> list[int]:
    """Everything below `pid`, parents first; also those of which only the exit status is left."""
    found: list[int] = []
    frontier = _children(pid)
    while frontier:
        found += frontier
        frontier = [child for parent in frontier for child in _children(parent)]
    return found


def _children(pid: int) -> list[int]:
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


def _children_by_scan(pid: int) -> list[int]:
    stats = {int(name): _stat(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    return [child for child, fields in stats.items() if fields is not None and int(fields[1]) == pid]


def marked(folder: str) -> list[Process]:
    """This user's processes that were started for `folder`, this one excepted. One that has changed its title hides its environment."""
    wanted = f"{MARK}={folder}".encode()
    found: list[Process] = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        process = identify(int(name))
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                belongs = wanted in file.read().split(b"\0")
        except OSError:
            continue
        if belongs and process is not None:
            found.append(process)
    return found


_RANK = "sglang::"
"""How the titles of SGLang's processes begin (scheduler, detokenizer); the kernel shows their first 15 bytes."""


def ranks_below(pid: int) -> dict[Process, str]:
    """Those processes of a server without which it is lost, by title; all of them are there once it answers."""
    found: dict[Process, str] = {}
    for below in descendants(pid):
        process, title = identify(below), _title(below)
        if process is not None and title.startswith(_RANK):
            found[process] = title
    return found


def kill(process: Process) -> None:
    """SIGKILL; nothing if it is gone."""
    if is_alive(process):
        signal_quietly(process.pid, signal.SIGKILL)


def signal_quietly(pid: int, sig: int) -> None:
    try:
        os.kill(pid, sig)
    except ProcessLookupError:
        return


def _title(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().rstrip("\n")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the state on."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].decode().split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        # The last: of another user, where /proc is mounted with hidepid=1.
        return None
