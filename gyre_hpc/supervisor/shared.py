"""Processes that several cells share (processes/cells.py), and a cell's place in one.

A process is started with its first cell and ends with its last one; that one is gone only when the process is. Whoever dies with the
process has its exit code.
"""

import asyncio
import contextlib
import shutil
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from gyre_hpc.shell.hosted import CellOrder, Verb, line_of, read_ending
from gyre_hpc.shell.timers import within
from gyre_hpc.supervisor.commands import Shared
from gyre_hpc.supervisor.lives import Life, kill_group
from gyre_hpc.supervisor.log_files import keep_small

ANSWER_S = 3.0
"""A process that drops no cell, or does not end without one, within this hangs, and all that is in it."""
Key = tuple[str, int]
Start = Callable[[Path], Awaitable[Process]]
"""Given the log of the process. Raises OSError."""


class SharedProcess:
    """One process and the cells in it."""

    def __init__(self, process: Process, stacks: Path, log: Path) -> None:
        self.process, self.stacks, self._log = process, stacks, log
        self._endings: dict[Key, asyncio.Future[int]] = {}
        self.is_leaving = False
        self.gone = asyncio.create_task(self._live())
        """Its exit code."""

    def bear(self, key: Key) -> asyncio.Future[int]:
        """The cell's exit code to be."""
        assert not self.is_leaving and key not in self._endings
        ending = self._endings[key] = asyncio.get_running_loop().create_future()
        self.order(Verb.birth, key)
        return ending

    def order(self, verb: Verb, key: Key) -> None:
        assert self.process.stdin is not None
        if self.process.returncode is None and not self.process.stdin.is_closing():
            self.process.stdin.write(line_of(CellOrder(verb, *key)))

    def forget(self, key: Key) -> None:
        """Its ending was told, or nobody wants to know. The last one ends the process."""
        self._endings.pop(key, None)
        if not self._endings and not self.is_leaving:
            self.is_leaving = True
            assert self.process.stdin is not None
            self.process.stdin.close()

    def kill(self) -> None:
        if self.process.returncode is None:
            kill_group(self.process.pid)

    async def _live(self) -> int:
        assert self.process.stdout is not None
        keeping = asyncio.create_task(keep_small(self._log))
        try:
            async for line in self.process.stdout:
                self._take(line)
            return await self.process.wait()
        finally:
            keeping.cancel()
            self.is_leaving = True
            kill_group(self.process.pid)
            for ending in self._endings.values():
                if not ending.done():
                    ending.set_result(-9 if self.process.returncode is None else self.process.returncode)

    def _take(self, line: bytes) -> None:
        with contextlib.suppress(msgspec.MsgspecError):  # cut short by its death
            said = read_ending(line)
            ending = self._endings.get((said.cell, said.incarnation))
            if ending is not None and not ending.done():
                ending.set_result(said.code)


class Place(Life):
    """One cell in a shared process."""

    def __init__(self, shared: SharedProcess, key: Key, stacks: Path) -> None:
        """stacks: the file where people look for the cell's own."""
        self._shared, self._key, self._stacks = shared, key, stacks
        self._ending = shared.bear(key)

    @property
    def pid(self) -> int:
        return self._shared.process.pid

    @property
    def is_over(self) -> bool:
        return self._ending.done()

    async def wait(self) -> int:
        code = await asyncio.shield(self._ending)
        self._shared.forget(self._key)
        if self._shared.is_leaving:
            await ended(self._shared)
        return code

    def terminate(self) -> None:
        if not self.is_over:
            self._shared.order(Verb.terminate, self._key)

    async def kill(self) -> None:
        if self.is_over:
            return
        self._shared.order(Verb.kill, self._key)
        try:
            async with within(ANSWER_S):
                await asyncio.shield(self._ending)
        except TimeoutError:
            self._shared.kill()

    def stacks_written(self) -> None:
        """Threads of one process: the file has those of all its cells."""
        with contextlib.suppress(OSError):
            shutil.copyfile(self._shared.stacks, self._stacks)

    def bury(self) -> None:
        if not self.is_over:
            self._shared.order(Verb.kill, self._key)
        self._shared.forget(self._key)
        if self._shared.is_leaving:
            self._shared.kill()


class SharedProcesses:
    """Those of one node, by name."""

    def __init__(self) -> None:
        self._here: dict[str, SharedProcess] = {}
        self._starting: dict[str, asyncio.Lock] = {}

    async def place(self, wanted: Shared, key: Key, log: Path, start: Start) -> Place:
        """In the process of that name, which `start` starts where there is none. Raises OSError."""
        async with self._starting.setdefault(wanted.name, asyncio.Lock()):
            shared = self._here.get(wanted.name)
            if shared is not None and shared.is_leaving:
                await ended(shared)
                shared = None
            if shared is None:
                shared = self._here[wanted.name] = SharedProcess(await start(log), wanted.stacks, log)
            return Place(shared, key, wanted.stacks_of_cell)

    async def gone(self) -> None:
        """Back when none of them is left. They were told to end."""
        for shared in self._here.values():
            await ended(shared)


async def ended(shared: SharedProcess) -> None:
    """It was told to end, or is dying; back when it is gone."""
    try:
        async with within(ANSWER_S):
            await asyncio.shield(shared.gone)
    except TimeoutError:
        shared.kill()
        await asyncio.shield(shared.gone)
