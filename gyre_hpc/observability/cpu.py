"""CPU seconds of this process, for `cpu` events and reports."""

import os
import resource
from collections.abc import Iterable


def cpu_seconds() -> tuple[float, float]:
    """(of this process, of its children that ended and were waited for), user and system together."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime


def cpu_seconds_of(pids: Iterable[int]) -> float:
    """User and system together, of other processes and of their children that ended and were waited for. Those that are gone count
    nothing, nor does anything where there is no /proc."""
    ticks = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        ticks += sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")
