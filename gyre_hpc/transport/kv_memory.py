"""Blocks between cells of one process: a copy. No torch, no socket, no thread.

Invariants:
  - an offer is read once, by one fetch, before its deadline;
  - a copy holds the offer's lock for one piece at most: `withdraw` waits for that, and afterwards nobody reads.
"""

import secrets
import threading
from collections.abc import Sequence

from gyre_hpc.clock import monotonic_s
from gyre_hpc.errors import TransferFailed
from gyre_hpc.transport.kv_base import Arrived, BlockTransport, Bytes, Ticket, nobody
from gyre_hpc.transport.kv_blocks import arriving, check_fetch, pieces, sizes_of

KIND = "memory"


class _Offer:
    """Blocks of one offer; `lock` guards everything in it, a reader's copy included."""

    def __init__(self, blocks: Sequence[Bytes], until: float) -> None:
        self.lock = threading.Lock()
        self.blocks = tuple(blocks)
        self.until = until
        self.is_taken = False
        self.is_over = False


_LOCK = threading.Lock()
_OFFERS: dict[str, _Offer] = {}
"""Of every transport of this process, by nonce."""


class MemoryBlocks(BlockTransport):
    """Kind `memory`. Source and target are threads of one process."""

    def __init__(self) -> None:
        self._offered: set[str] = set()

    def register(self, memory: Bytes) -> None:
        """Nothing to do: all of the process's memory can be read."""

    def offer(self, blocks: Sequence[Bytes], deadline_s: float) -> Ticket:
        ticket = Ticket(KIND, "", secrets.token_hex(16), sizes_of(blocks))
        with _LOCK:
            _OFFERS[ticket.offer] = _Offer(blocks, monotonic_s() + deadline_s)
            self._offered.add(ticket.offer)
        return ticket

    def fetch(self, ticket: Ticket, into: Sequence[Bytes], deadline_s: float, arrived: Arrived = nobody) -> None:
        check_fetch(ticket, KIND, into)
        with _LOCK:
            offer = _OFFERS.get(ticket.offer)
        if offer is None:
            raise TransferFailed("this process has no such offer")
        with offer.lock:
            if offer.is_taken or sizes_of(offer.blocks) != ticket.sizes:
                raise TransferFailed("the offer was fetched already" if offer.is_taken else "the offer has blocks of other sizes")
            offer.is_taken = True
        until = min(offer.until, monotonic_s() + deadline_s)
        for sources, (targets, count) in zip(pieces(offer.blocks), arriving(into), strict=True):
            with offer.lock:
                if offer.is_over:
                    raise TransferFailed("the offer was withdrawn")
                if monotonic_s() >= until:
                    raise TransferFailed("deadline passed")
                _copy(sources, targets)
            arrived(count)

    def withdraw(self, ticket: Ticket) -> bool:
        self._end(ticket.offer)
        return True

    def close(self) -> None:
        for nonce in tuple(self._offered):
            self._end(nonce)

    def _end(self, nonce: str) -> None:
        with _LOCK:
            self._offered.discard(nonce)
            offer = _OFFERS.pop(nonce, None)
        if offer is not None:
            with offer.lock:
                offer.is_over = True


def _copy(sources: Sequence[Bytes], targets: Sequence[Bytes]) -> None:
    """Both are cut at the same places, as their blocks have equal sizes."""
    for source, target in zip(sources, targets, strict=True):
        target[:] = source
