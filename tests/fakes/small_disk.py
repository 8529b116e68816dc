"""A file system of its own size, in a mount namespace of its own: needs no root, and nobody else sees it. It can be filled and enlarged."""

import asyncio
import contextlib
import errno
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

_TOOLS = ("unshare", "nsenter", "mount", "sh")
_HOLD = 'mount -t tmpfs -o "size=$2" tmpfs "$1" && echo mounted && exec cat'


def problem() -> str:
    """Why there can be none here; empty: there can."""
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        return f"no {', '.join(missing)}; install util-linux"
    command = ["unshare", "-Urm", "sh", "-c", "mount -t tmpfs -o size=64k tmpfs /tmp"]
    tried = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return f"user and mount namespaces are not allowed: {tried.stderr.strip()}" if tried.returncode else ""


class SmallDisk:
    """Mounted on `inside`, which only processes behind `enter` see; from here it is at `outside`."""

    def __init__(self, inside: Path, holder: asyncio.subprocess.Process) -> None:
        self.inside, self._holder = inside, holder
        self.outside = Path(f"/proc/{holder.pid}/root{inside}")
        self.enter = ("nsenter", "-t", str(holder.pid), "-U", "-m", "--preserve-credentials", "--wd")
        """In front of a command that is to see it."""

    def fill(self) -> None:
        """Until not one more block can be written."""
        ballast = os.open(self.outside / "ballast", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            while True:
                os.write(ballast, b"." * 4096)
        except OSError as error:
            assert error.errno == errno.ENOSPC
        finally:
            os.close(ballast)

    async def resize(self, size: str) -> None:
        """Both arguments of mount are given: else it would add options of the mount that mean nothing in this namespace."""
        command = (*self.enter, "mount", "-t", "tmpfs", "-o", f"remount,size={size}", "tmpfs", str(self.inside))
        process = await asyncio.create_subprocess_exec(*command)
        assert await process.wait() == 0


@contextlib.asynccontextmanager
async def small_disk(folder: Path, size: str) -> AsyncIterator[SmallDisk]:
    """`size` as mount takes it, on `folder`."""
    holder = await asyncio.create_subprocess_exec(
        "unshare", "-Urm", "sh", "-c", _HOLD, "sh", str(folder), size, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        assert await holder.stdout.readline() == b"mounted\n"
        yield SmallDisk(folder, holder)
    finally:
        holder.stdin.close()
        await holder.wait()
