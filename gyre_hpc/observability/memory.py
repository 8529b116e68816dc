"""Memory of this machine and of its processes, in bytes."""

import os
import resource
import sys
from collections.abc import Iterable
from pathlib import Path


def free_bytes() -> int:
    """What this machine can still give."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass  # not Linux
    pages = "SC_AVPHYS_PAGES" if "SC_AVPHYS_PAGES" in os.sysconf_names else "SC_PHYS_PAGES"
    return os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE")


def own_bytes() -> int:
    """What this process holds in memory; where only its peak is to be known, that."""
    try:
        return _resident("self")
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def bytes_of(pids: Iterable[int]) -> int:
    """What these processes hold in memory; pages they share count for each. One that is gone holds nothing."""
    total = 0
    for pid in pids:
        try:
            total += _resident(str(pid))
        except (OSError, IndexError):
            continue
    return total


def _resident(process: str) -> int:
    return int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
