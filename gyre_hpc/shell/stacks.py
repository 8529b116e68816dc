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
from pathlib import Path
from typing import BinaryIO

from gyre_hpc.shell.arguments import Birth

log = logging.getLogger(__name__)
ASKED = signal.SIGRTMIN + 1 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR2
"""`kill -s RTMIN+1 PID`. SLURM, submitit, torchrun and Go have their uses for those below; elsewhere than on Linux nobody is asked."""


def write_when_asked(path: Path) -> None:
    """From now on ASKED appends the stacks of all threads to `path`. A file that stayed empty goes when the process ends by itself."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "ab", buffering=0)
    except OSError as error:  # a full disk is nothing to end for
        log.warning("no stacks of this process will be written: %s", error)
        return
    faulthandler.register(ASKED, file=file, all_threads=True)
    atexit.register(_remove_empty, file, path)


def of_birth(birth: Birth, rank: int | None = None) -> None:
    """`write_when_asked`, to the file that is this process's. rank: of a cell's process, its rank in the cell."""
    write_when_asked(birth.folder.stacks(birth.name, birth.attempt, birth.incarnation, rank))


def ask(pid: int) -> bool:
    """False: it is gone, or does not listen (yet): it would be ended by the signal."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            caught = next((int(line.split()[1], 16) for line in file if line.startswith("SigCgt:")), 0)
        if not caught >> (ASKED - 1) & 1:
            return False
        os.kill(pid, ASKED)
    except OSError:
        return False
    return True


def _remove_empty(file: BinaryIO, path: Path) -> None:
    with contextlib.suppress(OSError):
        if not os.fstat(file.fileno()).st_size:
            path.unlink()
