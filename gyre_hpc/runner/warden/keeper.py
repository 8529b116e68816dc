"""Keeper: parent of one harness. Holds it to its limits, ends its whole tree, tells how it ended.

Signals: SIGUSR1 asks the harness to end (SIGTERM to its first process), SIGTERM kills everything.
"""

import ctypes
import os
import resource
import select
import signal
import socket

from gyre_hpc.clock import monotonic_s
from gyre_hpc.observability.memory import bytes_of
from gyre_hpc.observability.process_tree import children, descendants
from gyre_hpc.runner.warden.signals import Wakeups
from gyre_hpc.runner.warden.tree import end_tree
from gyre_hpc.runner.warden.wire import TAIL_BYTES, Ended, Run, encode

START_FD = 3
_CHECK_S = 0.5
SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1)
"""What a keeper listens to; blocked from its fork until it does."""
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def be_subreaper() -> None:
    """Orphans below this process become its children."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with(parent: int, sig: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, sig)
    if os.getppid() != parent:
        os._exit(1)


class Keeper:
    """One execution. `keep` runs in a freshly forked process and ends it."""

    def __init__(self, run: Run, out: socket.socket) -> None:
        self._run, self._out = run, out
        self._tail = b""
        self._code: int | None = None
        self._limit = ""
        self._cpu_s = 0.0

    def keep(self, warden: int) -> None:
        """Never returns."""
        wakeups = Wakeups(*SIGNALS)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        die_with(warden, signal.SIGTERM)
        os.setsid()
        be_subreaper()
        output, output_in = os.pipe()
        start, start_in = os.pipe()
        keeper = os.getpid()
        self._first = os.fork()
        if self._first == 0:
            _execute(self._run, keeper, output_in, start_in)
        os.close(output_in)
        os.close(start_in)
        os.set_blocking(output, False)
        os.set_blocking(start, False)
        self._watch(wakeups, output)
        self._reap()
        end_tree()
        self._read(output)
        self._tell(_drain(start) != b"")
        os._exit(0)

    def _watch(self, wakeups: Wakeups, output: int) -> None:
        """Until the first process is gone or everything is to be killed."""
        poll = select.poll()
        poll.register(wakeups.fd, select.POLLIN)
        poll.register(output, select.POLLIN)
        check_at = monotonic_s() + _CHECK_S
        while self._code is None:
            for fd, _ in poll.poll(_CHECK_S * 1000):
                if fd == output and not self._read(output):
                    poll.unregister(output)
            caught = wakeups.take()
            if signal.SIGTERM in caught:
                return
            if signal.SIGUSR1 in caught:
                self._ask_to_end()
            self._reap()
            if monotonic_s() > check_at:
                check_at = monotonic_s() + _CHECK_S
                if self._is_over_limit():
                    return

    def _ask_to_end(self) -> None:
        """SIGTERM to the harness itself: the sandbox around it would take it down without a chance to end in order."""
        harness = self._first
        for _ in range(self._run.depth):
            harness = next(iter(children(harness)), harness)
        os.kill(harness, signal.SIGTERM)

    def _read(self, output: int) -> bool:
        """Keep the last bytes printed. False at the end of the output."""
        while True:
            try:
                data = os.read(output, 65536)
            except BlockingIOError:
                return True
            if not data:
                return False
            self._tail = (self._tail + data)[-TAIL_BYTES:]

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._first:
                self._code = os.waitstatus_to_exitcode(status)

    def _is_over_limit(self) -> bool:
        below = descendants(os.getpid())
        if len(below) > self._run.max_processes:
            self._limit = "processes"
        elif bytes_of(below) > self._run.memory_mb << 20:
            self._limit = "memory"
        return bool(self._limit)

    def _tell(self, started: bool) -> None:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        ended = Ended(
            id=self._run.id,
            code=-signal.SIGKILL if self._code is None else self._code,
            started=started,
            limit=self._limit,
            cpu_s=sum(usage.ru_utime + usage.ru_stime for usage in used),
            tail=self._tail.decode(errors="replace"),
        )
        self._out.send(encode(ended))


def _drain(fd: int) -> bytes:
    try:
        return os.read(fd, 64)
    except BlockingIOError:
        return b""


def _execute(run: Run, keeper: int, output: int, start: int) -> None:
    """In the child: limits, streams, then the sandbox."""
    try:
        die_with(keeper, signal.SIGKILL)
        for sig in (*SIGNALS, signal.SIGINT, signal.SIGPIPE):
            signal.signal(sig, signal.SIG_DFL)
        nothing = os.open("/dev/null", os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.dup2(start, START_FD)
        os.set_inheritable(START_FD, True)
        os.closerange(START_FD + 1, 256)
        for kind, limit in (
            (resource.RLIMIT_AS, run.address_space_mb << 20 or resource.RLIM_INFINITY),
            (resource.RLIMIT_DATA, run.memory_mb << 20),
            (resource.RLIMIT_FSIZE, run.disk_mb << 20),
            (resource.RLIMIT_CPU, run.cpu_s),
            (resource.RLIMIT_CORE, 0),
        ):
            resource.setrlimit(kind, (limit, limit))
        os.chdir(run.folder)
        os.execve(run.argv[0], run.argv, run.environment)
    except BaseException as error:  # noqa: BLE001  (nothing may unwind into the keeper's code)
        os.write(2, f"{run.argv[0]}: {error}\n".encode())
    finally:
        os._exit(127)
