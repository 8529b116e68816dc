"""The warden's loop: forks keepers, passes signals on, buries them; ends with its runner and takes everything along."""

import os
import select
import signal
import socket

from gyre_hpc.observability.process_tree import children
from gyre_hpc.runner.warden.keeper import SIGNALS, Keeper, be_subreaper
from gyre_hpc.runner.warden.signals import Wakeups
from gyre_hpc.runner.warden.tree import end_tree
from gyre_hpc.runner.warden.wire import PACKET_BYTES, Gone, Halt, Run, decode, encode


class Warden:
    """One per runner. Single-threaded."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._keepers: dict[str, int] = {}

    def serve(self) -> None:
        """Until the runner's end of the socket closes, or SIGTERM."""
        be_subreaper()
        wakeups = Wakeups(signal.SIGCHLD, signal.SIGTERM)
        poll = select.poll()
        poll.register(wakeups.fd, select.POLLIN)
        poll.register(self._link.fileno(), select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if signal.SIGTERM in wakeups.take():
                break
            self._bury()
            if self._link.fileno() in ready and not self._take():
                break
        end_tree()

    def _take(self) -> bool:
        """One packet from the runner; False at its end."""
        try:
            data = self._link.recv(PACKET_BYTES)
        except ConnectionResetError:
            return False
        if not data:
            return False
        packet = decode(data)
        if isinstance(packet, Run):
            self._start(packet)
        elif isinstance(packet, Halt) and packet.id in self._keepers:
            os.kill(self._keepers[packet.id], signal.SIGTERM if packet.force else signal.SIGUSR1)
        return True

    def _start(self, run: Run) -> None:
        warden = os.getpid()
        # A signal that comes before the keeper listens must neither end it nor get lost.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        pid = os.fork()
        if pid == 0:
            Keeper(run, self._link).keep(warden)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        self._keepers[run.id] = pid

    def _bury(self) -> None:
        names = {pid: id for id, pid in self._keepers.items()}
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in names:
                del self._keepers[names[pid]]
                self._end_strays()
                self._say_gone(names[pid])

    def _end_strays(self) -> None:
        """What a keeper that was killed left to us; as it dies, what is below it comes to us too."""
        while strays := set(children(os.getpid())) - set(self._keepers.values()):
            for pid in strays:
                try:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                except (ProcessLookupError, ChildProcessError):
                    continue

    def _say_gone(self, id: str) -> None:
        try:
            self._link.send(encode(Gone(id=id)))
        except BrokenPipeError:
            return
