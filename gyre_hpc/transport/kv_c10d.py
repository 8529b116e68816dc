"""Blocks over torch's own pieces: a TCPStore and a desk of the source, and a pair of ProcessGroups for each reader.

A reader claims an offer at the desk (kv_desk.py); then the source sends the blocks over the pair as one stream of pieces. Connection
and pair stay for the next offer. Nothing is registered in torch.distributed. Backend `gloo` is tested; `nccl` takes the same path
through a staging buffer on the current device and is untested (it needs GPUs).

Invariants:
  - offered blocks are read by our own copies into a staging buffer alone, under the offer's lock: after `withdraw` nobody reads;
  - target blocks are written by our own copies alone, while `fetch` has not returned: a pair that outlives its caller writes to its
    staging buffer, which nobody reads any more;
  - no pair is formed before both ends have proved a ticket.
"""

import secrets
import socket
import threading
from collections.abc import Sequence
from typing import Any

from gyre_hpc.clock import monotonic_s
from gyre_hpc.errors import TransferFailed
from gyre_hpc.transport.breakable import Breakable
from gyre_hpc.transport.c10d_pair import Pair
from gyre_hpc.transport.c10d_pieces import Deadline, c10d, check_backend, join_store, open_store
from gyre_hpc.transport.kv_base import Arrived, BlockTransport, Bytes, Ticket, nobody
from gyre_hpc.transport.kv_blocks import check_fetch, sizes_of
from gyre_hpc.transport.kv_desk import Desk, Session
from gyre_hpc.transport.kv_lines import Line, Lines
from gyre_hpc.transport.kv_offered import Offered
from gyre_hpc.transport.kv_proof import READER, SOURCE

KIND = "c10d"
_PREFIX = "kv"
_INNER_SHARE = 0.9
"""torch's own deadlines end a little before ours: its reason says more than "deadline passed"."""


class C10dBlocks(BlockTransport):
    """Kind `c10d`. `host`: address of this process's interface; `backend`: gloo or nccl."""

    def __init__(self, *, host: str, backend: str = "gloo") -> None:
        self._host, self._backend = host, check_backend(backend)
        self._lock = threading.Lock()
        self._source: _Source | None = None
        self._lines = Lines()

    def register(self, memory: Bytes) -> None:
        """Nothing to do: staging buffers are what travels."""

    def offer(self, blocks: Sequence[Bytes], deadline_s: float) -> Ticket:
        sizes = sizes_of(blocks)
        with self._lock:
            if self._source is None:
                self._source = _Source(self._host, self._backend)
            return self._source.offer(tuple(blocks), sizes, deadline_s)

    def fetch(self, ticket: Ticket, into: Sequence[Bytes], deadline_s: float, arrived: Arrived = nobody) -> None:
        check_fetch(ticket, KIND, into)
        fetch = _Fetch(ticket, into, arrived, self._host, self._backend, _INNER_SHARE * deadline_s)
        try:
            Breakable(lambda call: fetch.run(self._lines, call), f"fetch of {sum(ticket.sizes)} bytes").run(deadline_s)
        finally:
            fetch.give_up()

    def withdraw(self, ticket: Ticket) -> bool:
        with self._lock:
            source = self._source
        if source is not None:
            source.withdraw(ticket.offer)
        return True

    def close(self) -> None:
        with self._lock:
            source, self._source = self._source, None
        if source is not None:
            source.close()
        self._lines.close()


class _Source:
    """What a process that has offered something listens with."""

    def __init__(self, host: str, backend: str) -> None:
        try:
            self.store = open_store(host)
        except (OSError, RuntimeError) as error:
            raise TransferFailed(f"no store could be opened on {host}: {error}") from error
        self.host, self.backend = host, backend
        self._desk = Desk(host, lambda plain: _Sending(self, plain))
        self._offered: dict[str, Offered] = {}

    def offer(self, blocks: tuple[Bytes, ...], sizes: tuple[int, ...], deadline_s: float) -> Ticket:
        ticket = Ticket(KIND, f"{self._desk.address},{self.host}:{self.store.port}", secrets.token_hex(16), sizes)
        self._offered[ticket.offer] = Offered(blocks)
        self._desk.open(ticket, deadline_s)
        return ticket

    def offered(self, nonce: str) -> Offered:
        """Raises TransferFailed."""
        found = self._offered.get(nonce)
        if found is None:
            raise TransferFailed("the offer was withdrawn")
        return found

    def withdraw(self, nonce: str) -> None:
        offered = self._offered.pop(nonce, None)
        if offered is not None:
            offered.end()
            self._desk.withdraw(nonce, 0.0)

    def close(self) -> None:
        for nonce in list(self._offered):
            self.withdraw(nonce)
        self._desk.close()
        self.store = None


class _Sending(Session):
    """The source's end of one reader's pair."""

    def __init__(self, source: _Source, plain: socket.socket) -> None:
        self._source, self._plain = source, plain
        self._lock = threading.Lock()
        self._pair: Pair | None = None
        self._is_aborted = False

    def bring(self, ticket: Ticket, line: str, until: float) -> None:
        offered, deadline = self._source.offered(ticket.offer), Deadline(until - monotonic_s())
        if any(ticket.sizes):
            self._standing(line, deadline).send(offered.blocks, deadline, offered.reading)

    def stop(self) -> None:
        self._plain.shutdown(socket.SHUT_RDWR)
        self.close()

    def close(self) -> None:
        with self._lock:
            self._is_aborted = True
            pair = self._pair
        if pair is not None:
            pair.close()

    def _standing(self, line: str, deadline: Deadline) -> Pair:
        if self._pair is None:
            # A client of its own: one that waits keeps all others from using it.
            store = c10d.PrefixStore(_PREFIX, self._source.store.clone())
            pair = Pair(store, line, self._source.backend, self._source.host, SOURCE, deadline)
            with self._lock:
                self._pair = pair
                aborted = self._is_aborted
            if aborted:
                pair.close()
        return self._pair


class _Fetch:
    """One fetch, run in a thread that its caller may leave."""

    def __init__(self, ticket: Ticket, into: Sequence[Bytes], arrived: Arrived, host: str, backend: str, deadline_s: float) -> None:
        self._ticket, self._into, self._arrived, self._host, self._backend = ticket, into, arrived, host, backend
        self._deadline = Deadline(deadline_s)
        self._line: Line | None = None
        self._is_done = False

    def run(self, lines: Lines, call: Breakable) -> None:
        """Raises TransferFailed, OSError, or what torch raises."""
        desk, _, store = self._ticket.address.partition(",")
        line = self._line = lines.claim(desk, self._ticket, self._deadline.left().total_seconds())
        try:
            if any(self._ticket.sizes):
                deadline = Deadline(line.until - monotonic_s())
                # gloo does not always notice that the other end is gone.
                with line.watched(call.abort):
                    if line.kept is None:
                        line.kept = self._pair(store, line.name, deadline)
                    line.kept.receive(self._into, deadline, call.wanted, self._arrived)
            line.quiet()
            self._is_done = True
        finally:
            if self._is_done:
                lines.give_back(line)
            else:
                line.close()

    def give_up(self) -> None:
        """By the caller: whatever `run` still waits for ends."""
        if not self._is_done and self._line is not None and self._line.kept is not None:
            self._line.kept.close()

    def _pair(self, store: str, line: str, deadline: Deadline) -> Any:
        return Pair(join_store(store, _PREFIX, deadline.left()), line, self._backend, self._host, READER, deadline)
