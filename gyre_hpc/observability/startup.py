"""How long a process took until it could work, step by step: the event `startup`.

The first step, `imports`, begins when the kernel started the process: interpreter, modules, file system.
"""

import os
from pathlib import Path

from gyre_hpc.clock import monotonic_s


def age_s(proc: Path = Path("/proc")) -> float | None:
    """Seconds since this process was started (proc(5): field 22 of stat, in ticks since boot); None where there is no /proc."""
    try:
        stat = (proc / "self/stat").read_text()
        up_s = float((proc / "uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None
    began = int(stat.rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return max(0.0, up_s - began)


class Startup:
    """Made at the first line of a process that can; `over(step)` after each step, in order."""

    def __init__(self, age: float | None = None) -> None:
        """age: seconds that are counted already; None: those since the kernel started this process."""
        self._at = monotonic_s() - ((age_s() or 0.0) if age is None else age)
        self.steps: dict[str, float] = {}
        """Step -> seconds."""

    def over(self, step: str) -> None:
        """The step that was under way is over, and was this one."""
        now = monotonic_s()
        self.steps[step] = self.steps.get(step, 0.0) + now - self._at
        self._at = now
