"""One child while it lives, as the shell of supervision holds it: a process of its own, or a place in one that cells share (shared.py)."""

import contextlib
import os
import signal
from abc import ABC, abstractmethod
from asyncio.subprocess import Process


class Life(ABC):
    """Lifecycle: made when it was begun -> wait() -> bury()."""

    @property
    @abstractmethod
    def pid(self) -> int: ...

    @property
    @abstractmethod
    def is_over(self) -> bool: ...

    @abstractmethod
    async def wait(self) -> int:
        """Its exit code, once it is gone."""

    @abstractmethod
    def terminate(self) -> None:
        """SIGTERM to the process itself; it ends its own children."""

    @abstractmethod
    async def kill(self) -> None:
        """SIGKILL, to it and to all that it started."""

    def stacks_written(self) -> None:  # noqa: B027  (a process of its own wrote them where they belong)
        """Its process has written its stacks. In a thread."""

    @abstractmethod
    def bury(self) -> None:
        """Nothing of it is left afterwards, whether it ended by itself or is still there."""


class OwnProcess(Life):
    """With a session of its own and a stdin pipe of which we alone hold the other end."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_over(self) -> bool:
        return self._process.returncode is not None

    async def wait(self) -> int:
        return await self._process.wait()

    def terminate(self) -> None:
        if not self.is_over:
            self._process.terminate()

    async def kill(self) -> None:
        """Ranks of a cell follow by their parent-death signal and the closed pipe."""
        if not self.is_over:
            self.bury()

    def bury(self) -> None:
        kill_group(self.pid)
        if self._process.stdin is not None:
            self._process.stdin.close()


def kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
