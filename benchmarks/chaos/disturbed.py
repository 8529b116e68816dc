"""A run of `launch.py` and the processes in it, seen from outside by its files and by /proc (family.py)."""

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.chaos.launched import LaunchedRun
from benchmarks.chaos.unreceived import Unreceived
from benchmarks.chaos.victims import Scene
from gyre_hpc.observability.events import Event, EventReader
from gyre_hpc.observability.status import Status

_LOOK_AGAIN_S = 1.0
"""All of /proc costs some milliseconds."""


class DisturbedRun(LaunchedRun):
    """What can be killed in it, by what it noted so far."""

    def __init__(self, folder: Path, overrides: Sequence[str], *, resumes: bool = False) -> None:
        """resumes: the run in `folder` goes on; otherwise it is a new one."""
        super().__init__(folder, *overrides, resumes=resumes)
        self._look_again_at = 0.0
        self._reader = EventReader(self.folder.events_folder)
        self._pids: dict[str, int] = {}
        self._states: dict[str, str] = {}
        self.unreceived = Unreceived()
        self.phase, self.update = "starting", 0
        self.over: set[str] = set()
        """Training executions that are over."""
        self.sampled_in: set[int] = set()
        """Attempts that got a token."""
        self._told: Status | None = None
        """The newest status that could be read."""

    def pids(self, prefix: str) -> list[int]:
        """Of living processes of the run whose names begin so, as far as `look` has seen them."""
        return [self._pids[name] for name in self._named(prefix)]

    def look(self) -> Scene:
        """Take in what was noted since, and say what can be killed now."""
        if time.monotonic() > self._look_again_at:
            self.family.look()
            self._look_again_at = time.monotonic() + _LOOK_AGAIN_S
        for event in self._reader.poll():
            self._take(event)
        self._told = self.status or self._told
        if self._told is not None:
            self.unreceived.count({name: gateway.tokens for name, gateway in self._told.gateways.items()})
        core = {cell.name for cell in self._told.cells if cell.is_core} if self._told is not None else set()
        return Scene(
            cells={name: self._states.get(name, "") for name in self._named("cell-") if core and name not in core},
            gateways=tuple(self._named("gateway-")),
            runners=tuple(self._named("runner-")),
        )

    def kill(self, name: str) -> int:
        """SIGKILL, as a machine that burns down; returns the pid. Raises ProcessLookupError if it has just ended by itself."""
        pid = self._pids.pop(name)
        os.kill(pid, signal.SIGKILL)
        return pid

    def _named(self, prefix: str) -> list[str]:
        return [name for name in self._pids if name.startswith(prefix)]

    def _take(self, event: Event) -> None:
        fields = event.fields
        match event.kind:
            case "process_registered":
                self._pids[str(fields["process"])] = int(fields["pid"])
            case "process_started" | "process_ended" if "process" in fields:
                self._pids.pop(str(fields["process"]), None)
                if event.kind == "process_started":
                    self.unreceived.restarted(str(fields["process"]))
            case "cell_state":
                self._states[str(fields["cell"])] = str(fields["state"])
            case "execution_ended" if fields.get("purpose") == "train":
                self.over.add(str(fields["execution"]))
            case "first_token":
                self.sampled_in.add(event.attempt)
            case "phase":
                self.phase, self.update = str(fields["phase"]), int(fields["update"])
            case "applied":
                self.update = int(fields["update"]) + 1
