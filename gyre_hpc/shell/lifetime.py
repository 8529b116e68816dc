"""A process ends with its parent: parent-death signal, and a stdin pipe whose EOF ends it. SIGTERM ends it too."""

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int, sig: signal.Signals = signal.SIGTERM) -> None:
    """Ask the kernel to signal this process when its parent ends. Call from the main thread.

    Raises SystemExit if the parent is gone already. Linux only; elsewhere the stdin pipe alone does it.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, sig)
    if os.getppid() != parent_pid:
        raise SystemExit("parent process is gone")


def end_with_parent(stop: Callable[[str], None]) -> None:
    """Call `stop(reason)` at SIGTERM, SIGINT, or EOF on stdin. Needs a running loop in the main thread."""
    loop = asyncio.get_running_loop()
    for sig in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sig, stop, sig.name)

    def readable() -> None:
        if not os.read(0, 4096):
            loop.remove_reader(0)
            stop("parent closed the pipe")

    os.set_blocking(0, False)
    loop.add_reader(0, readable)


def limit_threads() -> None:
    """One OpenMP thread per process: with more processes than cores its barriers collapse. Before torch is imported."""
    os.environ["OMP_NUM_THREADS"] = "1"
