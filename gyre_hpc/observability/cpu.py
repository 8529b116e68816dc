"""CPU seconds of this process, for `cpu` events and reports."""

import os
import resource
from collections.abc import Callable, Hashable, Iterable


def cpu_seconds() -> tuple[float, float]:
    """(of this process, of its children that ended and were waited for), user and system together."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime


def own_cpu_s() -> float:
    """Of this process, user and system together."""
    return cpu_seconds()[0]


class CpuShares:
    """CPU seconds of a process, divided evenly among those that live in it at the time. What is used while nobody lives there goes to
    those that come next: the sum of all shares is what the process used."""

    def __init__(self, used_s: Callable[[], float] = own_cpu_s) -> None:
        self._used_s = used_s
        self._each_s = 0.0
        """Share of one that was there from the beginning."""
        self._divided_s = 0.0
        """Of the process; has an owner."""
        self._began: dict[Hashable, float] = {}
        """Who lives here -> _each_s when it came."""

    def enter(self, who: Hashable) -> None:
        self._divide()
        self._began[who] = self._each_s

    def leave(self, who: Hashable) -> None:
        self._divide()
        del self._began[who]

    def of(self, who: Hashable) -> float:
        """Seconds so far."""
        self._divide()
        return self._each_s - self._began[who]

    def _divide(self) -> None:
        if self._began:
            used_s = self._used_s()
            self._each_s += (used_s - self._divided_s) / len(self._began)
            self._divided_s = used_s


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
