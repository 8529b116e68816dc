"""The reader's side of a desk: connections to sources, used again for the next offer of the same source."""

import contextlib
import secrets
import select
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

from gyre_hpc.clock import monotonic_s
from gyre_hpc.errors import TransferFailed
from gyre_hpc.transport import kv_proof
from gyre_hpc.transport.deadline_socket import DeadlineSocket
from gyre_hpc.transport.kv_base import Ticket
from gyre_hpc.transport.kv_greeting import GREETING_S, QUIET, Answer, Claim, receive, send
from gyre_hpc.transport.kv_proof import READER, SOURCE


class Line:
    """One connection, for one claim at a time."""

    def __init__(self, address: str, deadline_s: float) -> None:
        """Raises TransferFailed."""
        self.address, self.name = address, secrets.token_hex(8)
        self.kept: Any = None
        """What a kind keeps beside it; has `close()`."""
        self.until = 0.0
        """When reading must have ended, on this machine's clock."""
        host, _, port = address.rpartition(":")
        try:
            self._plain = socket.create_connection((host, int(port)), deadline_s)
        except (OSError, ValueError) as error:
            raise TransferFailed(f"the source cannot be reached at {address}: {error}") from error
        self._peer = DeadlineSocket(self._plain, deadline_s)

    def claim(self, ticket: Ticket, deadline_s: float) -> None:
        """Raises TransferFailed when it is refused, OSError when the source is gone or does not answer."""
        begin = monotonic_s()
        self._peer.extend(deadline_s)
        send(self._peer, Claim(kv_proof.shown_by(READER, ticket), self.name))
        answer = receive(self._peer, Answer)
        if answer.refused or not kv_proof.is_right(answer.shown, SOURCE, ticket):
            raise TransferFailed(answer.refused or "the source shows a wrong proof")
        # Counted from before the question: never later than the source's own.
        self.until = begin + min(deadline_s, answer.left_s)

    def check(self) -> None:
        """Raises TransferFailed when reading must stop."""
        if monotonic_s() >= self.until:
            raise TransferFailed("deadline passed")
        # Whatever comes next sets a timeout of its own.
        self._plain.settimeout(0.0)
        try:
            told = self._plain.recv(1, socket.MSG_PEEK)
            raise TransferFailed("the offer was withdrawn" if told else "the source is gone")
        except BlockingIOError:
            return
        except OSError as error:
            raise TransferFailed(f"the source is gone: {error}") from error

    @property
    def plain(self) -> socket.socket:
        """For a kind that sends blocks over the connection itself."""
        return self._plain

    @contextlib.contextmanager
    def watched(self, gone: Callable[[str], None]) -> Iterator[None]:
        """While the block runs and waits for something else: call `gone`, once, when the source closes the connection."""
        end, ended = socket.socketpair()

        def watch() -> None:
            ready = select.poll()
            for one in (self._plain, ended):
                ready.register(one, select.POLLIN)
            if ended.fileno() not in dict(ready.poll()):
                gone("the source is gone, or withdrew the offer")

        thread = threading.Thread(target=watch, name="kv-watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            end.close()
            thread.join()
            ended.close()

    def quiet(self) -> None:
        """Nothing of the offer is read any more. Raises OSError."""
        self._peer.extend(GREETING_S)
        self._peer.sendall(QUIET)

    def close(self) -> None:
        if self.kept is not None:
            self.kept.close()
        self._plain.close()


class Lines:
    """Thread-safe. Lines that nobody uses, by address."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[str, list[Line]] = {}
        self._is_closed = False

    def claim(self, address: str, ticket: Ticket, deadline_s: float) -> Line:
        """A line that has claimed the offer. Raises TransferFailed."""
        until = monotonic_s() + deadline_s
        while (line := self._take(address)) is not None:
            # The source may have closed it meanwhile; then nothing was claimed.
            with contextlib.suppress(OSError):
                return self._claimed(line, ticket, until)
        try:
            return self._claimed(Line(address, deadline_s), ticket, until)
        except OSError as error:
            raise TransferFailed(f"the source at {address} does not answer: {error}") from error

    def give_back(self, line: Line) -> None:
        """Its reader is quiet: another may use it."""
        with self._lock:
            if not self._is_closed:
                self._idle.setdefault(line.address, []).append(line)
                return
        line.close()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            lines = [line for idle in self._idle.values() for line in idle]
            self._idle.clear()
        for line in lines:
            line.close()

    def _take(self, address: str) -> Line | None:
        with self._lock:
            idle = self._idle.get(address)
            return idle.pop() if idle else None

    @staticmethod
    def _claimed(line: Line, ticket: Ticket, until: float) -> Line:
        try:
            line.claim(ticket, max(0.001, until - monotonic_s()))
        except (OSError, TransferFailed):
            line.close()
            raise
        return line
