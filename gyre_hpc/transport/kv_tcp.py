"""Blocks over the connection on which they are claimed: from the source's memory into the target's, no copy of our own between.

No torch and no thread at the reader. A system call copies one piece at most and never waits, under the lock of the offer (source); so
`withdraw` waits for one piece. The reader is woken when a whole piece is there, so it is neither woken nor called for a packet.

Invariants:
  - offered blocks are read under the offer's lock alone: after `withdraw` nobody reads;
  - target blocks are written in `fetch` alone, in its caller's thread;
  - a stream that was broken off is never used again.
"""

import secrets
import select
import socket
import threading
from collections.abc import Sequence

from gyre_hpc.clock import monotonic_s
from gyre_hpc.errors import TransferFailed
from gyre_hpc.transport.kv_base import Arrived, BlockTransport, Bytes, Ticket, nobody
from gyre_hpc.transport.kv_blocks import arriving, check_fetch, pieces, sizes_of
from gyre_hpc.transport.kv_desk import Desk, Session
from gyre_hpc.transport.kv_lines import Lines
from gyre_hpc.transport.kv_offered import Offered

KIND = "tcp"
_PIECE_BYTES = 4 << 20
"""Large, so that what a piece costs does not count; small beside a fetch, since its reader checks one while the next one comes."""
_MAX_PARTS = 512
"""Of one system call; Linux takes 1024."""


class TcpBlocks(BlockTransport):
    """Kind `tcp`. `host`: address of this process's interface."""

    def __init__(self, *, host: str) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._desk: Desk | None = None
        self._offered: dict[str, Offered] = {}
        self._lines = Lines()

    def register(self, memory: Bytes) -> None:
        """Nothing to do: the kernel reads and writes any memory of the process."""

    def offer(self, blocks: Sequence[Bytes], deadline_s: float) -> Ticket:
        sizes = sizes_of(blocks)
        with self._lock:
            if self._desk is None:
                self._desk = Desk(self._host, lambda plain: _Sending(self._offered, plain))
            ticket = Ticket(KIND, self._desk.address, secrets.token_hex(16), sizes)
            self._offered[ticket.offer] = Offered(tuple(blocks))
            self._desk.open(ticket, deadline_s)
            return ticket

    def fetch(self, ticket: Ticket, into: Sequence[Bytes], deadline_s: float, arrived: Arrived = nobody) -> None:
        check_fetch(ticket, KIND, into)
        line = self._lines.claim(ticket.address, ticket, deadline_s)
        is_whole = False
        try:
            line.plain.settimeout(0.0)
            for piece, count in arriving(into, _PIECE_BYTES, _MAX_PARTS):
                _receive(line.plain, piece, line.until)
                arrived(count)
            line.quiet()
            is_whole = True
        except OSError as error:
            raise TransferFailed(f"the source at {ticket.address} is gone: {error}") from error
        finally:
            if is_whole:
                self._lines.give_back(line)
            else:
                line.close()

    def withdraw(self, ticket: Ticket) -> bool:
        with self._lock:
            desk, offered = self._desk, self._offered.pop(ticket.offer, None)
        if desk is not None and offered is not None:
            offered.end()
            desk.withdraw(ticket.offer, 0.0)
        return True

    def close(self) -> None:
        with self._lock:
            desk, self._desk = self._desk, None
            offers = list(self._offered.values())
            self._offered.clear()
        for offered in offers:
            offered.end()
        if desk is not None:
            desk.close()
        self._lines.close()


class _Sending(Session):
    """The source's end of one reader's connection."""

    def __init__(self, offers: dict[str, Offered], plain: socket.socket) -> None:
        self._offers, self._plain = offers, plain

    def bring(self, ticket: Ticket, line: str, until: float) -> None:
        offered = self._offers.get(ticket.offer)
        if offered is None:
            raise TransferFailed("the offer was withdrawn")
        self._plain.settimeout(0.0)
        for piece in pieces(offered.blocks, _PIECE_BYTES, _MAX_PARTS):
            _send(self._plain, piece, offered, until)

    def stop(self) -> None:
        """No word may come in between: the reader would take it for the blocks' last byte."""
        self._plain.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """The desk closes the connection."""


def _send(plain: socket.socket, piece: Sequence[Bytes], offered: Offered, until: float) -> None:
    """All of `piece`. Raises TransferFailed at `until` (monotonic) and when the offer is over, OSError when the other end is gone."""
    parts = [part.data for part in piece]
    while parts:
        left = _left(until)
        try:
            with offered.reading():
                count = plain.sendmsg(parts)
        except BlockingIOError:
            _wait(plain, select.POLLOUT, left)
            continue
        parts = _after(parts, count)


def _receive(plain: socket.socket, piece: Sequence[Bytes], until: float) -> None:
    """All of `piece`. Raises TransferFailed at `until` (monotonic), OSError when the other end is gone."""
    parts, missing = [part.data for part in piece], sum(part.size for part in piece)
    try:
        while parts:
            # What the kernel cannot hold it gives earlier.
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, missing)
            _wait(plain, select.POLLIN, _left(until))
            try:
                count = plain.recvmsg_into(parts)[0]
            except BlockingIOError:
                continue
            if not count:
                raise ConnectionError("the other end closed the connection")
            parts, missing = _after(parts, count), missing - count
    finally:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


def _left(until: float) -> float:
    """Seconds until then. Raises TransferFailed when there are none."""
    left = until - monotonic_s()
    if left <= 0:
        raise TransferFailed("deadline passed")
    return left


def _wait(plain: socket.socket, event: int, left_s: float) -> None:
    ready = select.poll()
    ready.register(plain, event)
    ready.poll(1000 * left_s)


def _after(parts: list[memoryview], count: int) -> list[memoryview]:
    """What is left of `parts` behind their first `count` bytes."""
    for index, part in enumerate(parts):
        if count < len(part):
            return [part[count:], *parts[index + 1 :]]
        count -= len(part)
    return []
