"""All processes of a run, whoever is their parent by now.

Every one inherits a mark in its environment, or stands below one that has it when it is first seen: a sandboxed program carries no
mark, and without its parent nobody would know it again. So they are looked at often and remembered.
"""

import contextlib
import os
import signal
import uuid
from pathlib import Path

_MARK = "GYRE_CHAOS_RUN"


class Family:
    """Give `environment` to the first of them."""

    def __init__(self) -> None:
        self._mark = uuid.uuid4().hex
        self.environment = {_MARK: self._mark}
        self._known: dict[int, str] = {}
        """pid -> when it was started, in ticks since boot: a pid may be given out again."""

    def look(self) -> set[int]:
        """Living ones, this process's own children that are no more aside."""
        table = {pid: found for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if (found := _portrait(pid))}
        self._known = {pid: born for pid, born in self._known.items() if pid in table and table[pid][1] == born}
        for pid, (_, born) in table.items():
            if pid not in self._known and self._is_marked(pid):
                self._known[pid] = born
        grown = True
        while grown:
            below = {pid: born for pid, (parent, born) in table.items() if parent in self._known and pid not in self._known}
            self._known |= below
            grown = bool(below)
        return set(self._known)

    def end(self) -> None:
        """Kill what still lives."""
        for pid in self.look():
            with contextlib.suppress(ProcessLookupError):  # ended meanwhile
                os.kill(pid, signal.SIGKILL)

    def _is_marked(self, pid: int) -> bool:
        try:
            return f"{_MARK}={self._mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:  # gone, or another user's
            return False


def _portrait(pid: int) -> tuple[int, str] | None:
    """(parent, time of birth); None for the dead and those waiting to be reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else (int(fields[1]), fields[19])
