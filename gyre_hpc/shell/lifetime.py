"""A process ends with its parent: parent-death signal, and a stdin pipe whose EOF ends it. SIGTERM ends it too.

The parent (supervisor, agent of a cell, launcher) puts its pid into the environment, so that a child born while its
parent was dying notices that it was adopted.
"""

import asyncio
import atexit
import ctypes
import os
import select
import signal
import stat
import sys
import threading
from collections.abc import Callable, Mapping
from typing import NoReturn

PARENT_PID = "GYRE_PARENT_PID"
"""Environment variable: pid of the process that started this one."""
PARENT_SIGNAL = "GYRE_PARENT_SIGNAL"
"""Environment variable: name of the signal at the parent's death, SIGTERM if unset."""
SUPERVISOR_PID = "GYRE_SUPERVISOR_PID"
"""Environment variable of a cell's ranks, whose parent is the cell's agent: pid of the run's supervisor on this node."""
ORDERLY_END_S = 15
_PR_SET_PDEATHSIG = 1


def child_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment for a child of this process: ours, its parent's pid, one OpenMP thread, then `extra`."""
    return {**os.environ, PARENT_PID: str(os.getpid()), "OMP_NUM_THREADS": "1", **(extra or {})}


def die_with_parent(parent_pid: int, sig: signal.Signals = signal.SIGTERM) -> None:
    """Ask the kernel to signal this process when its parent ends. Call from the main thread.

    Raises SystemExit if the parent is gone already. Linux only; elsewhere the stdin pipe alone does it.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, sig)
    if os.getppid() != parent_pid:
        raise SystemExit("parent process is gone")


def die_with_born_parent() -> None:
    """die_with_parent of what the environment names; nothing if it names none (started by hand)."""
    parent = os.environ.get(PARENT_PID)
    if parent:
        die_with_parent(int(parent), signal.Signals[os.environ.get(PARENT_SIGNAL, "SIGTERM")])


def on_closed_pipe(call: Callable[[], None]) -> None:
    """Call `call` from a thread of its own once every other holder of our stdin pipe is gone. No data is read from it.

    A thread, so that a process whose loop hangs notices too. Nothing happens if stdin is no pipe (started by hand).
    """
    mode = os.fstat(0).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return
    poll = select.poll()
    poll.register(0, 0)  # POLLHUP is always reported

    def watch() -> None:
        poll.poll()
        call()

    threading.Thread(target=watch, name="leash", daemon=True).start()


def end_with_parent(stop: Callable[[str], None], within_s: int = ORDERLY_END_S) -> None:
    """Call `stop(reason)` at SIGTERM, SIGINT, parent's death, or EOF on stdin. Needs a running loop in the main thread.

    From then on the process has `within_s` seconds; after that the kernel ends it (SIGALRM), whatever it hangs in.
    """
    die_with_born_parent()
    loop = asyncio.get_running_loop()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)

    def leave(reason: str) -> None:
        signal.alarm(within_s)
        stop(reason)

    def pipe_closed() -> None:
        signal.alarm(within_s)
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop, "parent closed the pipe")

    for sig in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sig, leave, sig.name)
    on_closed_pipe(pipe_closed)


def limit_threads() -> None:
    """One OpenMP thread per process: with more processes than cores its barriers collapse. Before torch is imported."""
    os.environ["OMP_NUM_THREADS"] = "1"


def leave(code: int) -> NoReturn:
    """End a process as the interpreter would, threads joined and atexit done, but without taking the interpreter apart: with torch loaded
    that takes a second and more, in which others wait for its end."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
