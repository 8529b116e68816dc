"""A run of `launch.py`, its processes by name and their CPU seconds, seen from outside."""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.chaos.launched import LaunchedRun
from gyre_hpc.observability.cpu import cpu_seconds_of
from gyre_hpc.observability.events import Event, read_events

CONTROL = ("supervisor", "controller", "gateway", "runner")
"""Kinds of processes that are there however many cells there are."""
_LOOK_S = 0.1


class WatchedRun(LaunchedRun):
    """Its processes and events, by kind."""

    def until(self, true: Callable[[], object], what: str, within_s: float) -> None:
        """Raises RuntimeError when the run ends before, TimeoutError."""
        limit = time.monotonic() + within_s
        while not true():
            if self.exit_code is not None:
                raise RuntimeError(f"the run ended before {what}:\n{self.out.read_text()}")
            if time.monotonic() > limit:
                raise TimeoutError(f"{what}: not within {within_s:.0f} s:\n{self.out.read_text()}")
            time.sleep(_LOOK_S)

    def wait(self, within_s: float) -> None:
        """To its end. Raises RuntimeError when that is no good one, TimeoutExpired."""
        if self._child.wait(within_s):
            raise RuntimeError(f"the run failed:\n{self.out.read_text()}")

    def stop(self) -> None:
        """In order."""
        self._child.terminate()
        self._child.wait(90)

    def events(self, kind: str) -> list[Event]:
        return [event for event in read_events(self.folder.events_folder) if event.kind == kind]

    def all_up_s(self, processes: int) -> float:
        """Seconds from the start of the run until so many processes were registered."""
        registered = [event.time for event in self.events("process_registered")]
        return registered[processes - 1] - self.events("run_started")[0].time

    def pids(self) -> dict[str, list[int]]:
        """By kind of process: supervisor, controller, gateway, runner, cell, cells."""
        found: dict[str, list[int]] = {}
        for pid in self.family.look():
            if (kind := _kind(pid)) is not None:
                found.setdefault(kind, []).append(pid)
        return found


def cpu_s(pids: Mapping[str, list[int]]) -> dict[str, float]:
    """By kind of process, of those that live."""
    return {kind: cpu_seconds_of(members) for kind, members in pids.items()}


def totals(events: list[Event], field: str, processes: str = "") -> dict[str, list[float]]:
    """Counts and bytes (or seconds) by kind, over the `traffic` of processes whose names begin so."""
    found: dict[str, list[float]] = {}
    for event in events:
        if event.process.startswith(processes):
            told: dict[str, Any] = event.fields[field]
            for kind, (count, amount) in told.items():
                sums = found.setdefault(kind, [0, 0])
                sums[0] += count
                sums[1] += amount
    return found


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder that goes afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="gyre-scale-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _kind(pid: int) -> str | None:
    try:
        argv = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return None
    found = [one.removeprefix("gyre_hpc.processes.") for one in argv if one.startswith("gyre_hpc.processes.")]
    return found[0] if found else None
