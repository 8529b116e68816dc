"""Starts, signals and buries children: the actions of the supervision machine on real processes."""

import asyncio
import contextlib
import math
import os
import signal
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.machines.supervision import DumpStacks, KillProcess, SpawnProcess, TerminateProcess
from gyre_hpc.observability.process_tree import children
from gyre_hpc.shell.lifetime import child_environment
from gyre_hpc.shell.stacks import ask
from gyre_hpc.shell.timers import until
from gyre_hpc.supervisor.commands import Command
from gyre_hpc.supervisor.log_files import LOOK_EVERY_S, bound, open_log

STACKS_S = 2.0
"""Stacks of some hundred threads on a busy machine."""
_LOOK_EVERY_S = 0.01
Tell = Callable[[Any], None]


class Children:
    """The processes of one node. Each has a session of its own and a stdin pipe of which we alone hold the other end."""

    def __init__(self, folder: RunFolder, command_for: Callable[[SpawnProcess], Command]) -> None:
        self._folder, self._command_for = folder, command_for
        self._live: dict[tuple[str, int], Process] = {}

    async def spawn(self, key: str, action: SpawnProcess, tell: Tell) -> int:
        """Start it and stay until it is gone; return its exit code. If we are cancelled it is killed."""
        command = self._command_for(action)
        log = self._log_of(action)
        with open_log(log) as output:
            child = await asyncio.create_subprocess_exec(
                *command.argv, stdin=PIPE, stdout=output, stderr=STDOUT, start_new_session=True,
                env=child_environment(command.environment),
            )  # fmt: skip
        self._live[action.process, action.incarnation] = child
        keeping = asyncio.create_task(_keep_small(log))
        try:
            return await child.wait()
        finally:
            keeping.cancel()
            del self._live[action.process, action.incarnation]
            _kill_group(child.pid)
            if child.stdin is not None:
                child.stdin.close()

    def _log_of(self, action: SpawnProcess) -> Path:
        """One file per part of a cell over several nodes: a file of a shared folder has one writer."""
        return self._folder.log(action.process + (f"-part-{action.part}" if action.part else ""))

    async def stacks(self, key: str, action: DumpStacks, tell: Tell) -> tuple[int, ...]:
        """Of the process and of those it started: the ranks of a cell are its agent's. Back when they are written."""
        child = self._live.get((action.process, action.incarnation))
        if child is None or child.returncode is not None:
            return ()
        asked = [writing for pid in (child.pid, *children(child.pid)) if (writing := ask(pid)) is not None]
        # One that is stopped takes no signal.
        with contextlib.suppress(TimeoutError):
            await until(lambda: all(writing.is_over() for writing in asked) or None, _LOOK_EVERY_S, STACKS_S)
        return tuple(writing.pid for writing in asked)

    async def terminate(self, key: str, action: TerminateProcess, tell: Tell) -> None:
        """SIGTERM to the process itself; it ends its own children."""
        child = self._live.get((action.process, action.incarnation))
        if child is not None and child.returncode is None:
            child.terminate()

    async def kill(self, key: str, action: KillProcess, tell: Tell) -> None:
        """SIGKILL to its process group; ranks of a cell follow by their parent-death signal and the closed pipe."""
        child = self._live.get((action.process, action.incarnation))
        if child is not None and child.returncode is None:
            _kill_group(child.pid)
            if child.stdin is not None:
                child.stdin.close()


async def _keep_small(log: Path) -> None:
    """As long as somebody writes there."""
    await until(lambda: bound(log), LOOK_EVERY_S, math.inf)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
