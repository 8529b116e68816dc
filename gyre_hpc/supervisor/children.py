"""Starts, signals and buries children: the actions of the supervision machine on real processes."""

import asyncio
import contextlib
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
from gyre_hpc.supervisor.lives import Life, OwnProcess
from gyre_hpc.supervisor.log_files import keep_small, open_log
from gyre_hpc.supervisor.shared import SharedProcesses

STACKS_S = 2.0
"""Stacks of some hundred threads on a busy machine."""
_LOOK_EVERY_S = 0.01
Tell = Callable[[Any], None]


class Children:
    """The processes of one node. Each has a session of its own and a stdin pipe of which we alone hold the other end."""

    def __init__(self, folder: RunFolder, command_for: Callable[[SpawnProcess], Command]) -> None:
        self._folder, self._command_for = folder, command_for
        self._live: dict[tuple[str, int], Life] = {}
        self._shared = SharedProcesses()

    async def spawn(self, key: str, action: SpawnProcess, tell: Tell) -> int:
        """Start it and stay until it is gone; return its exit code. If we are cancelled it is killed."""
        log = self._log_of(action)
        life = await self._begin(self._command_for(action), action, log)
        self._live[action.process, action.incarnation] = life
        keeping = asyncio.create_task(keep_small(log))
        try:
            return await life.wait()
        finally:
            keeping.cancel()
            del self._live[action.process, action.incarnation]
            life.bury()

    async def close(self) -> None:
        """After the last spawn() is over or cancelled."""
        await self._shared.gone()

    async def _begin(self, command: Command, action: SpawnProcess, log: Path) -> Life:
        if command.shared is None:
            return OwnProcess(await _start(command, log))
        shared = command.shared
        # Its own file, to which the process that it shares writes what it logs.
        open_log(log).close()
        return await self._shared.place(
            shared, (action.process, action.incarnation), self._folder.log(shared.name), lambda log: _start(command, log, answers=PIPE)
        )

    def _log_of(self, action: SpawnProcess) -> Path:
        """One file per part of a cell over several nodes: a file of a shared folder has one writer."""
        return self._folder.log(action.process + (f"-part-{action.part}" if action.part else ""))

    async def stacks(self, key: str, action: DumpStacks, tell: Tell) -> tuple[int, ...]:
        """Of the process and of those it started: the ranks of a cell are its agent's. Back when they are written."""
        life = self._live.get((action.process, action.incarnation))
        if life is None or life.is_over:
            return ()
        asked = [writing for pid in (life.pid, *children(life.pid)) if (writing := ask(pid)) is not None]
        # One that is stopped takes no signal.
        with contextlib.suppress(TimeoutError):
            await until(lambda: all(writing.is_over() for writing in asked) or None, _LOOK_EVERY_S, STACKS_S)
        await asyncio.to_thread(life.stacks_written)
        return tuple(writing.pid for writing in asked)

    async def terminate(self, key: str, action: TerminateProcess, tell: Tell) -> None:
        life = self._live.get((action.process, action.incarnation))
        if life is not None:
            life.terminate()

    async def kill(self, key: str, action: KillProcess, tell: Tell) -> None:
        life = self._live.get((action.process, action.incarnation))
        if life is not None:
            await life.kill()


async def _start(command: Command, log: Path, answers: int | None = None) -> Process:
    """answers: where its stdout goes, if not to the log. Raises OSError."""
    with open_log(log) as output:
        return await asyncio.create_subprocess_exec(
            *command.argv, stdin=PIPE, stdout=output if answers is None else answers, stderr=output if answers else STDOUT, start_new_session=True,
            env=child_environment(command.environment),
        )  # fmt: skip
