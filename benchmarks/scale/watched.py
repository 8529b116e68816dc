"""What the processes of a run hold, as /proc says: memory, descriptors, sockets, threads, children."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_MODULE = re.compile(r"gyre_hpc\.processes\.(\w+)")
_NAME = re.compile(r"--name\0([^\0]+)")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One process at one moment."""

    pid: int
    kind: str
    """The module of gyre_hpc.processes that it runs."""
    name: str
    at: float
    """Seconds, as the caller counts them."""
    pss_mib: float
    """Its own memory and its part of what it shares."""
    peak_mib: float
    """Most that was ever resident."""
    cpu_s: float
    fds: int
    sockets: int
    threads: int
    children: int


def look(pids: Iterable[int], at: float) -> list[Sample]:
    """One for each living process of ours among `pids`: harnesses and sandboxes are left out."""
    return [sample for pid in pids if (sample := _look(pid, at)) is not None]


def _look(pid: int, at: float) -> Sample | None:
    folder = Path(f"/proc/{pid}")
    try:
        argv = (folder / "cmdline").read_bytes().decode(errors="replace")
        module, name = _MODULE.search(argv), _NAME.search(argv)
        if module is None:
            return None
        status = _numbers(folder / "status")
        stat = (folder / "stat").read_text().rpartition(")")[2].split()
        links = [_link(folder / "fd" / fd) for fd in os.listdir(folder / "fd")]
        return Sample(
            pid=pid,
            kind=module[1],
            name=name[1] if name is not None else module[1],
            at=at,
            pss_mib=_numbers(folder / "smaps_rollup")["Pss"] / 1024,
            peak_mib=status["VmHWM"] / 1024,
            cpu_s=(int(stat[11]) + int(stat[12])) / _TICKS,
            fds=len(links),
            sockets=sum(link.startswith("socket:") for link in links),
            threads=status["Threads"],
            children=sum(len((task / "children").read_text().split()) for task in (folder / "task").iterdir()),
        )
    except (OSError, KeyError):  # it ends just now
        return None


def _numbers(path: Path) -> dict[str, int]:
    """The lines of a file of /proc that say a number."""
    found = (re.match(r"(\w+):\s+(\d+)", line) for line in path.read_text().splitlines())
    return {line[1]: int(line[2]) for line in found if line is not None}


def _link(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
