"""The Python stacks of a process that does not answer: written when a signal asks for them, whatever the process hangs in.

The C handler of the signal writes them. It waits for no lock of the interpreter, so a thread that keeps that lock inside a library, which
makes the process deaf to everything else, is in the file by name.
"""

import atexit
import contextlib
import faulthandler
import logging
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from gyre_hpc.shell.arguments import Birth

log = logging.getLogger(__name__)
ASKED = signal.SIGRTMIN + 1 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR2
"""`kill -s RTMIN+1 PID`. SLURM, submitit, torchrun and Go have their uses for those below; elsewhere than on Linux nobody is asked."""


def write_when_asked(path: Path) -> None:
    """From now on ASKED appends the stacks of all threads to `path`. A file that stayed empty goes when the process ends by itself."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except OSError as error:  # a full disk is nothing to end for
        log.warning("no stacks of this process will be written: %s", error)
        return
    faulthandler.register(ASKED, file=file, all_threads=True)
    atexit.register(_remove_empty, file, path)


def of_birth(birth: Birth, rank: int | None = None, agent: int | None = None) -> None:
    """`write_when_asked`, to the file that is this process's. rank: of a process of a cell; agent: of its agent, the part that it holds."""
    write_when_asked(birth.folder.stacks(birth.name, birth.attempt, birth.incarnation, rank, agent))


@dataclass(frozen=True, kw_only=True, slots=True)
class Writing:
    """A process that was asked. What else it is told may come before the stacks, or end it in their midst."""

    pid: int
    deaf: frozenset[int]
    """Threads that never take the signal."""

    def is_over(self) -> bool:
        """The stacks are written, or it is gone. The thread that writes them takes no second signal meanwhile."""
        return not _bit(f"/proc/{self.pid}/status", "ShdPnd") and _deaf(self.pid) <= self.deaf


def ask(pid: int) -> Writing | None:
    """None: it is gone, or does not listen (yet), in which case the signal would end it."""
    if not _bit(f"/proc/{pid}/status", "SigCgt"):
        return None
    writing = Writing(pid=pid, deaf=_deaf(pid))
    try:
        os.kill(pid, ASKED)
    except OSError:
        return None
    return writing


def _deaf(pid: int) -> frozenset[int]:
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return frozenset()
    return frozenset(int(task) for task in tasks if _bit(f"/proc/{pid}/task/{task}/status", "SigBlk"))


def _bit(path: str, mask: str) -> bool:
    """Whether ASKED is in that mask of signals."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return any(int(line.split()[1], 16) >> (ASKED - 1) & 1 for line in file if line.startswith(f"{mask}:"))
    except OSError:
        return False


def _remove_empty(file: int, path: Path) -> None:
    with contextlib.suppress(OSError):
        if not os.fstat(file).st_size:
            path.unlink()
