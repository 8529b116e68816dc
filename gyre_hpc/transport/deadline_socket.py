"""A socket under one deadline: however slowly the peer sends, a read ends in time.

A plain socket timeout counts from the last byte, so a peer that trickles could hold a thread for ever. Here every
operation gets what is left of the whole.
"""

import io
import socket

from gyre_hpc.clock import monotonic_s


class DeadlineSocket:
    """What http.client and http.server need of a socket: sendall, makefile, close."""

    def __init__(self, sock: socket.socket, deadline_s: float) -> None:
        self._sock = sock
        self._until = monotonic_s() + deadline_s
        self._readers = 0
        self._closing = False
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def extend(self, deadline_s: float) -> None:
        """Begin a new piece of work with a deadline of its own."""
        self._until = monotonic_s() + deadline_s

    def _arm(self) -> None:
        left = self._until - monotonic_s()
        if left <= 0:
            raise TimeoutError("deadline passed")
        self._sock.settimeout(left)

    def sendall(self, data: "bytes | memoryview") -> None:
        self._arm()
        self._sock.sendall(data)

    def recv_into(self, buffer: "bytearray | memoryview") -> int:
        self._arm()
        return self._sock.recv_into(buffer)

    def makefile(self, mode: str = "rb", buffering: int = -1) -> io.BufferedReader:
        """http.client asks for this once per response; reads only."""
        self._readers += 1
        return io.BufferedReader(_Reader(self))

    def close(self) -> None:
        """Like a plain socket: open files keep it open until they are closed too."""
        self._closing = True
        if not self._readers:
            self._sock.close()

    def reader_closed(self) -> None:
        """One file of `makefile` was closed."""
        self._readers -= 1
        if self._closing:
            self.close()


class _Reader(io.RawIOBase):
    def __init__(self, sock: DeadlineSocket) -> None:
        self._sock = sock

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        return self._sock.recv_into(buffer)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._sock.reader_closed()
