"""The process between keeper and server: the server's parent, and the end of all its descendants.

Three nested ties, so that no single SIGKILL leaves a process behind: the guard is the subreaper of the server's tree and kills it
when the keeper's pipe closes; the keeper is the subreaper of the guard's tree and kills it when the guard goes; the kernel kills
the server's first process when the guard goes.
"""

import ctypes
import os
import select
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from gyre_hpc.clock import monotonic_s
from gyre_hpc.engines.sglang.server_folder import clear
from gyre_hpc.engines.sglang.shared_memory import mapped, remove
from gyre_hpc.observability.process_tree import descendants, signal_quietly

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_TO_THE_STEP = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""What a cluster sends to every process of a job step to announce its end. It means something to the run, nothing to a server: ignored,
which a server inherits."""


class Wakeups:
    """SIGCHLD and SIGTERM of this (single-threaded) process as something to poll."""

    def __init__(self) -> None:
        self.fd, writing = os.pipe()
        for fd in (self.fd, writing):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for sig in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(sig, lambda number, frame: None)
        for sig in _TO_THE_STEP:
            signal.signal(sig, signal.SIG_IGN)

    def take(self) -> set[int]:
        """Signals caught since the last call."""
        try:
            return set(os.read(self.fd, 4096))
        except BlockingIOError:
            return set()


class Guard:
    """The keeper's side. Its caller must be single-threaded."""

    def __init__(self, argv: tuple[str, ...], environ: dict[str, str], output: int, folder: Path, end_s: float) -> None:
        """Fork the guard, which starts the server with `output` as its stdout and stderr. It clears `folder` should the keeper be gone."""
        control, self._control = os.pipe()
        self.news, news = os.pipe()
        """Says the exit status of the server's first process once nothing of it is left, then closes."""
        self.pid = os.fork()
        if self.pid == 0:
            try:
                # Another holder of these ends would hide that the keeper is gone.
                os.close(self._control)
                os.close(self.news)
                _Inside(control, news, folder, end_s).run(argv, environ, output)
            finally:
                os._exit(1)
        os.close(control)
        os.close(news)

    def end(self) -> None:
        """SIGTERM to the server's first process; SIGKILL to all of it when its time is over."""
        try:
            os.write(self._control, b"e")
        except BrokenPipeError:
            return

    def finish(self) -> int | None:
        """Once `news` says something: its exit status; None: the guard was killed. Nothing of the server is left afterwards."""
        said = os.read(self.news, 64)
        os.close(self._control)
        kill_tree()
        return int(said) if said else None


class _Inside:
    """The guard's own side."""

    def __init__(self, control: int, news: int, folder: Path, end_s: float) -> None:
        self._control, self._news, self._folder, self._end_s = control, news, folder, end_s
        self._is_alone = False
        self._code: int | None = None
        self._kill_at = float("inf")

    def run(self, argv: tuple[str, ...], environ: dict[str, str], output: int) -> NoReturn:
        os.setsid()
        be_subreaper()
        wakeups = Wakeups()
        guard = os.getpid()
        self._first = os.fork()
        if self._first == 0:
            _execute(argv, environ, output, guard)
        # Held open here, the output would not end with the server.
        os.close(output)
        self._watch(wakeups)
        shared = mapped(descendants(os.getpid())) if self._is_alone else set()
        kill_tree(self._note)
        if self._is_alone:
            remove(shared)
            # A new keeper would have ended us before it put anything there.
            clear(self._folder)
            os._exit(0)
        os.write(self._news, str(-signal.SIGKILL if self._code is None else self._code).encode())
        os._exit(0)

    def _watch(self, wakeups: Wakeups) -> None:
        """Until the first process is gone, or its time is over, or the keeper is gone."""
        poll = select.poll()
        poll.register(wakeups.fd, select.POLLIN)
        poll.register(self._control, select.POLLIN)
        while self._code is None:
            left_s = self._kill_at - monotonic_s()
            if left_s <= 0:
                return
            for fd, _ in poll.poll(None if left_s == float("inf") else left_s * 1000 + 1):
                if fd == self._control:
                    if not os.read(self._control, 64):
                        self._is_alone = True
                        return
                    self._ask_to_end()
            if signal.SIGTERM in wakeups.take():
                self._ask_to_end()
            reap(self._note)

    def _ask_to_end(self) -> None:
        if self._kill_at == float("inf"):
            self._kill_at = monotonic_s() + self._end_s
            signal_quietly(self._first, signal.SIGTERM)

    def _note(self, pid: int, code: int) -> None:
        if pid == self._first:
            self._code = code


_Note = Callable[[int, int], None]
"""pid and exit status of a child."""


def _forget(pid: int, code: int) -> None:
    return


def be_subreaper() -> None:
    """Orphans below this process become its children."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap(note: _Note = _forget) -> bool:
    """Take the exit status of every child that has ended; False: there are no children."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        note(pid, os.waitstatus_to_exitcode(status))


def kill_tree(note: _Note = _forget) -> None:
    """Kill and reap everything below this process, which must be a subreaper. Stopped first, it cannot grow meanwhile."""
    me = os.getpid()
    while True:
        for sig in (signal.SIGSTOP, signal.SIGKILL):
            for pid in descendants(me):
                signal_quietly(pid, sig)
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return
        note(pid, os.waitstatus_to_exitcode(status))
        reap(note)


def _execute(argv: tuple[str, ...], environ: dict[str, str], output: int, guard: int) -> NoReturn:
    """In the server's first process."""
    try:
        os.setsid()
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(1)
        for sig in (signal.SIGCHLD, signal.SIGTERM, signal.SIGPIPE, signal.SIGINT):
            signal.signal(sig, signal.SIG_DFL)
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.execve(argv[0], argv, environ)
    except BaseException as error:  # noqa: BLE001  (nothing may unwind into the guard's code)
        os.write(2, f"{argv[0]}: {error}\n".encode())
    finally:
        os._exit(127)
