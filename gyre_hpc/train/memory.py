"""Memory of this rank, measured: what a role change is acknowledged with."""

import os
import resource
import sys
from pathlib import Path

from gyre_hpc.protocol.to_batch import RankMemory


def measure(rank: int) -> RankMemory:
    """Host memory in bytes: free on the machine, used by this process. For trainers whose device is the CPU."""
    return RankMemory(rank=rank, free=_free(), used=_used())


def _free() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass  # not Linux
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _used() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
