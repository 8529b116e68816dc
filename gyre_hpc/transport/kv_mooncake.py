"""Blocks over mooncake-transfer-engine: one-sided reads of registered memory, over TCP here, RDMA by configuration (untested).

The reader claims the offer at the source's desk (kv_desk.py), reads pieces into a bounce buffer of its own, and copies each into the
target blocks. Why a bounce buffer: a read of a silent peer cannot be called off; what it still writes must hit nothing that is used.

Invariants:
  - a bounce buffer is used again only after the library has returned from its last read;
  - target blocks are written by our own copies alone, while `fetch` has not returned;
  - a reader says that it is quiet only when the library has returned, and begins no read after the offer's deadline.
"""

import secrets
import socket
import threading
from collections.abc import Sequence

import numpy as np

from gyre_hpc.clock import monotonic_s
from gyre_hpc.errors import TransferFailed, UserError
from gyre_hpc.transport.breakable import Breakable
from gyre_hpc.transport.kv_base import Arrived, BlockTransport, Bytes, Ticket, nobody
from gyre_hpc.transport.kv_blocks import address_of, arriving, check_fetch, runs, sizes_of
from gyre_hpc.transport.kv_desk import Desk, Session
from gyre_hpc.transport.kv_greeting import STOP
from gyre_hpc.transport.kv_lines import Line, Lines
from gyre_hpc.transport.mooncake_engine import MAX_RUNS, MooncakeEngine, engine_of_process

KIND = "mooncake"
_PIECE_BYTES = 2 << 20
"""Small, so that what has come is copied and checked while the rest still comes."""
_QUIET_S = 0.5
"""How long a withdrawal waits for its reader to stop: a piece takes far less."""


class MooncakeBlocks(BlockTransport):
    """Kind `mooncake`. `host`: address of this process's interface; `protocol`: tcp or rdma; `device`: see transport.kv_device."""

    def __init__(self, *, host: str, protocol: str = "tcp", device: str = "") -> None:
        if protocol not in ("tcp", "rdma"):
            raise UserError("transport.kv_protocol", protocol, "use tcp or rdma")
        self._engine: MooncakeEngine = engine_of_process(host, protocol, device)
        self._desk = Desk(host, _Reading)
        self._lines = Lines()
        self._lock = threading.Lock()
        self._registered: list[Bytes] = []
        self._bounces: list[Bytes] = []
        """Registered too, and not in use."""
        self._is_closed = False

    def register(self, memory: Bytes) -> None:
        self._engine.register(address_of(memory), memory.size)
        with self._lock:
            self._registered.append(memory)

    def offer(self, blocks: Sequence[Bytes], deadline_s: float) -> Ticket:
        sizes, places = sizes_of(blocks), tuple(address_of(block) for block in blocks)
        known = [(address_of(memory), address_of(memory) + memory.size) for memory in self._registered]
        for index, (place, size) in enumerate(zip(places, sizes, strict=True)):
            if size and not any(low <= place and place + size <= high for low, high in known):
                raise TransferFailed(f"block {index} lies outside the registered memory")
        ticket = Ticket(KIND, f"{self._desk.address},{self._engine.session}", secrets.token_hex(16), sizes, places)
        self._desk.open(ticket, deadline_s)
        return ticket

    def fetch(self, ticket: Ticket, into: Sequence[Bytes], deadline_s: float, arrived: Arrived = nobody) -> None:
        check_fetch(ticket, KIND, into)
        if len(ticket.places) != len(ticket.sizes):
            raise TransferFailed("the ticket lacks places")
        until = monotonic_s() + deadline_s
        Breakable(lambda call: self._fetch(ticket, into, arrived, until, call), f"fetch of {sum(ticket.sizes)} bytes").run(deadline_s)

    def withdraw(self, ticket: Ticket) -> bool:
        return self._desk.withdraw(ticket.offer, _QUIET_S)

    def close(self) -> None:
        self._desk.close()
        self._lines.close()
        with self._lock:
            memory, self._registered, self._bounces = [*self._registered, *self._bounces], [], []
            self._is_closed = True
        for one in memory:
            self._engine.unregister(address_of(one))

    def _fetch(self, ticket: Ticket, into: Sequence[Bytes], arrived: Arrived, until: float, call: Breakable) -> None:
        desk, _, session = ticket.address.partition(",")
        line = self._lines.claim(desk, ticket, until - monotonic_s())
        is_whole = False
        try:
            self._read(session, ticket, into, arrived, line, call)
            line.quiet()
            is_whole = True
        finally:
            if is_whole:
                self._lines.give_back(line)
            else:
                line.quiet()
                line.close()

    def _read(self, session: str, ticket: Ticket, into: Sequence[Bytes], arrived: Arrived, line: Line, call: Breakable) -> None:
        bounce = self._take_bounce()
        try:
            cut = arriving(into, _PIECE_BYTES, MAX_RUNS)
            for (piece, num_whole), places in zip(cut, runs(ticket.places, ticket.sizes, _PIECE_BYTES, MAX_RUNS), strict=True):
                line.check()
                start = address_of(bounce)
                self._engine.read(session, [(start + offset, place, size) for offset, place, size in places])
                with call.wanted():
                    _copy_out(bounce, piece)
                    arrived(num_whole)
        finally:
            # Also when the caller has long gone: only now is the buffer free.
            self._give_bounce(bounce)

    def _take_bounce(self) -> Bytes:
        with self._lock:
            if self._bounces:
                return self._bounces.pop()
        bounce = np.empty(_PIECE_BYTES, dtype=np.uint8)
        self._engine.register(address_of(bounce), bounce.size)
        return bounce

    def _give_bounce(self, bounce: Bytes) -> None:
        with self._lock:
            if not self._is_closed:
                self._bounces.append(bounce)
                return
        self._engine.unregister(address_of(bounce))


class _Reading(Session):
    """The source has nothing to do, and cannot call a read off: the reader looks at its line between two pieces."""

    def __init__(self, plain: socket.socket) -> None:
        self._plain = plain

    def bring(self, ticket: Ticket, line: str, until: float) -> None:
        """One-sided."""

    def stop(self) -> None:
        self._plain.send(STOP)

    def close(self) -> None:
        """Nothing is kept."""


def _copy_out(bounce: Bytes, piece: Sequence[Bytes]) -> None:
    start = 0
    for part in piece:
        part[:] = bounce[start : start + part.size]
        start += part.size
