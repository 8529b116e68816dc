"""A whole run: `launch.py` in a process of its own, seen from outside by its files, its processes and what it prints.

Every process of the run inherits a mark in its environment, or stands below one that has it: so what is left of a run can be found
whoever its parent is by then.
"""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

import msgspec

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.stored import load_config
from gyre_hpc.observability.events import Event, read_events
from gyre_hpc.observability.process_tree import signal_quietly
from gyre_hpc.protocol.identity import ExecutionId
from gyre_hpc.protocol.train_groups import TrainGroups
from gyre_hpc.report.trained import trained_groups
from gyre_hpc.shell.lifetime import PARENT_PID
from gyre_hpc.train.checkpoint_folder import newest_whole, read_state
from tests.fakes.live_run import REPOSITORY, descendants, is_alive
from tests.fakes.own_folder import forget_scratch_at_exit

MARK = "GYRE_TEST_RUN"
REHEARSAL = ("+experiment=rehearsal", "cluster.cells=3", "algo.groups_per_batch=3", "algo.group_size=4")
"""Seconds: no torch, no warm start, no evaluation."""


class WholeRun:
    """Use as a context manager; whatever it started is dead after it. `overrides` go to launch.py; the run folder is root/run."""

    def __init__(self, root: Path, *overrides: str) -> None:
        self.folder = RunFolder(root / "run")
        self.mark = uuid.uuid4().hex
        self.out = root / f"out-{self.mark[:8]}"
        self._seen: set[int] = set()
        forget_scratch_at_exit(self.folder)
        places = [] if any(one.startswith("resume=") for one in overrides) else [f"paths.run={self.folder.root}"]
        if not any(one.startswith("paths.cache=") for one in overrides):
            places.append(f"paths.cache={root / 'cache'}")
        environment = {name: value for name, value in os.environ.items() if name != PARENT_PID}
        with open(self.out, "wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(REPOSITORY / "launch.py"), *overrides, *places],
                cwd=root, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**environment, MARK: self.mark},
            )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for pid in self.processes():
            signal_quietly(pid, signal.SIGKILL)  # one may go with the one before it

    @property
    def printed(self) -> str:
        """Everything it said so far."""
        return self.out.read_text()

    def events(self, *kinds: str, attempt: int | None = None) -> list[Event]:
        """Facts noted so far, by time."""
        return [
            event
            for event in read_events(self.folder.events_folder)
            if (not kinds or event.kind in kinds) and (attempt is None or event.attempt == attempt)
        ]

    def wait_until(self, true: Callable[[], object], what: str, within_s: float = 90.0) -> None:
        """Poll until `true()`; fail with what the run said when it ends first or takes too long."""
        limit = time.monotonic() + within_s
        while not true():
            assert self.process.poll() is None, f"the run ended before {what}:\n{self.printed}"
            assert time.monotonic() < limit, f"waited {within_s} s in vain: {what}\n{self.printed}"
            time.sleep(0.05)

    def wait_event(self, kind: str, where: Callable[[Event], bool] = lambda event: True, within_s: float = 90.0) -> Event:
        """The first event of `kind` for which `where` holds."""
        self.wait_until(lambda: any(where(event) for event in self.events(kind)), f"event {kind}", within_s)
        return next(event for event in self.events(kind) if where(event))

    def wait_end(self, within_s: float = 120.0) -> int:
        """Exit code of the launcher."""
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not over after {within_s} s:\n{self.printed}") from None

    def processes(self) -> set[int]:
        """Every living process of the run but the launcher. Those seen once are remembered: sandboxed ones carry no mark."""
        self._seen |= {pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self._is_marked(pid)}
        for pid in list(self._seen):
            self._seen |= descendants(pid)
        self._seen = {pid for pid in self._seen if pid != self.process.pid and is_alive(pid)}
        return set(self._seen)

    def _is_marked(self, pid: int) -> bool:
        try:
            return f"{MARK}={self.mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:  # gone, or another user's
            return False

    def pid(self, name: str) -> int:
        """The process that serves as `name`, as the registry knows it; for a cell its leader, for `supervisor` the supervisor."""
        for pid in self.processes():
            argv = _argv(pid)
            if name == "supervisor" and b"gyre_hpc.processes.supervisor" in argv:
                return pid
            named = b"--name" in argv and argv[argv.index(b"--name") + 1] == name.encode()
            if named and b"gyre_hpc.processes.cell_agent" not in argv:
                return pid
        raise AssertionError(f"no process named {name}")

    def kill(self, name: str, sig: signal.Signals = signal.SIGKILL) -> int:
        """Signal the process `name`; returns its pid."""
        pid = self.pid(name)
        os.kill(pid, sig)
        return pid

    def summary(self) -> dict[str, Any]:
        """summary.json."""
        return dict(json.loads(self.folder.summary.read_text()))

    def consumed(self) -> list[str]:
        """As `consumed`, of this run."""
        return consumed(self.folder)

    def half_written(self) -> list[Path]:
        """Files and folders that were to be renamed and were not."""
        return [path for path in self.folder.root.rglob("*") if path.name.endswith((".tmp", ".partial")) or path.name.startswith(".")]


def _argv(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def consumed(folder: RunFolder) -> list[str]:
    """Executions of the groups in the newest whole checkpoint, by the names that they began with: each as often as the controller's log
    says that weights were trained on it."""
    newest = newest_whole(folder.checkpoints)
    assert newest is not None, "no whole checkpoint"
    trained, size = trained_groups(folder), load_config(folder.config).algo.group_size
    groups = [group for group in TrainGroups.read(read_state(newest)["consumed"]) for _ in range(max(1, trained[group]))]
    return [str(ExecutionId(group.purpose, group.slot, group.group, index)) for group in groups for index in range(size)]


def first_names(executions: Iterable[str]) -> set[str]:
    """Whatever try of them it was."""
    return {str(msgspec.structs.replace(ExecutionId.parse(execution), restart=0)) for execution in executions}


def unended(events: list[Event]) -> set[str]:
    """Training executions that began and came to no end: neither ended, nor another one begun in their place."""
    began = {event.fields["execution"] for event in events if event.kind == "execution_began" and event.fields.get("purpose") == "train"}
    began |= {event.fields["execution"] for event in events if event.kind == "execution_restarted"}
    over = {event.fields["execution"] for event in events if event.kind == "execution_ended" and event.fields.get("purpose") == "train"}
    over |= {event.fields["instead_of"] for event in events if event.kind == "execution_restarted"}
    return began - over
