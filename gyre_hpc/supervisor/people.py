"""commands/ in the run folder: what people want of a run that they may reach no other way, and what they are answered."""

import asyncio
import contextlib
import os
import re
import stat

import msgspec

from gyre_hpc.clock import unix_s
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.machines.supervision import ReadCommands, WriteAnswer
from gyre_hpc.protocol.people import Command, Unreadable, Wish
from gyre_hpc.supervisor.children import Tell
from gyre_hpc.whole_file import write_whole

_NAME = re.compile(r"([A-Za-z0-9_-]{1,80})\.json")
_LARGEST = 1 << 16
"""Bytes of an order."""
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class People:
    """Actions of supervisor-0."""

    def __init__(self, folder: RunFolder, attempt: int) -> None:
        self._folder, self._attempt = folder, attempt

    async def read(self, key: str, action: ReadCommands, tell: Tell) -> tuple[Command | Unreadable, ...]:
        """Raises OSError."""
        return await asyncio.to_thread(self._read)

    async def answer(self, key: str, action: WriteAnswer, tell: Tell) -> None:
        """Raises OSError."""
        answer = msgspec.structs.replace(action.answer, time=unix_s())
        await asyncio.to_thread(write_whole, self._folder.answer(action.id), msgspec.json.encode(answer), mode=0o600)

    def _read(self) -> tuple[Command | Unreadable, ...]:
        self._touch()
        try:
            names = set(os.listdir(self._folder.commands))
        except FileNotFoundError:  # nobody wanted anything yet
            return ()
        ids = (found[1] for name in sorted(names) if (found := _NAME.fullmatch(name)))
        return tuple(filter(None, (self._one(id) for id in ids if self._folder.answer(id).name not in names)))

    def _touch(self) -> None:
        """By the clock of the file system where it has one; takes no space, so that a full disk is no death."""
        path = self._folder.alive(self._attempt)
        with contextlib.suppress(OSError):
            try:
                os.utime(path)
            except FileNotFoundError:
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def _began(self) -> float:
        """When this attempt's supervisor said that it listens; 0 where that is gone."""
        try:
            return self._folder.start(self._attempt).stat().st_mtime
        except OSError:
            return 0.0

    def _one(self, id: str) -> Command | Unreadable | None:
        """None: it is gone, or cannot be read just now."""
        path = self._folder.command(id)
        try:
            # Before it is opened: some devices do something as soon as they are.
            if wrong := _no_file(path.lstat()):
                return Unreadable(id, wrong)
            # Whatever lies there by now: a pipe without a writer would wait for one, and a link may lead anywhere.
            file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC)
        except PermissionError as error:
            return Unreadable(id, f"its supervisor may not read it ({error.strerror})")
        except OSError:
            return None
        try:
            facts = os.fstat(file)
            if wrong := _no_file(facts):
                return Unreadable(id, wrong)
            data = os.read(file, _LARGEST + 1)
        except OSError:
            return None
        finally:
            os.close(file)
        return self._decoded(id, data, facts.st_mtime)

    def _decoded(self, id: str, data: bytes, written: float) -> Command | Unreadable:
        if len(data) > _LARGEST:
            return Unreadable(id, f"it has more than {_LARGEST} bytes")
        try:
            return Command(id, msgspec.json.decode(data, type=Wish), written < self._began())
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return Unreadable(id, str(error))


def _no_file(facts: os.stat_result) -> str:
    """What it is instead; empty for a file."""
    if stat.S_ISREG(facts.st_mode):
        return ""
    return f"it is {_KINDS.get(stat.S_IFMT(facts.st_mode), 'no file')}"
