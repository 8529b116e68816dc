"""Interface of what moves KV pages between two ranks of two cells: bytes from memory to memory, one kind per file.

The source offers blocks of its own memory and gets a ticket; the ticket travels by HTTP (with keys, checksums and version,
engines/base.py) to the target, which fetches into memory of its own. One-sided kinds (memory, mooncake) read without the source's
doing anything; two-sided ones (c10d) send from a thread of the source. The caller holds the offered memory until `withdraw` has
returned, and checks checksums itself: a kind may deliver garbage when its peer dies, but never writes outside the target blocks, and
never after `fetch` returned.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
"""Contiguous view [n] of memory."""
Arrived = Callable[[int], None]
"""Told by a fetch: so many leading blocks are whole, and are not written any more. Rising; from one thread, which it must not hold up."""


def nobody(count: int) -> None:
    """Nobody wants to know what has arrived."""


class Ticket(msgspec.Struct, frozen=True):
    """How a target reaches one offer. No secret beyond its nonce, which is worth nothing without the address."""

    kind: str
    address: str
    """What the kind needs to find the source."""
    offer: str
    """Nonce of this offer."""
    sizes: tuple[int, ...]
    """Bytes of each block."""
    places: tuple[int, ...] = ()
    """One-sided kinds: addresses of the blocks in the source's memory."""


class BlockTransport(ABC):
    """One per rank process. Thread-safe; every call blocks and has a deadline; errors are TransferFailed with the reason."""

    @abstractmethod
    def register(self, memory: Bytes) -> None:
        """Memory in which blocks will lie, once, before the first offer or fetch (RDMA pins it). Kinds that need none ignore it."""

    @abstractmethod
    def offer(self, blocks: Sequence[Bytes], deadline_s: float) -> Ticket:
        """Make `blocks` readable for one fetch within `deadline_s`. Raises TransferFailed."""

    @abstractmethod
    def fetch(self, ticket: Ticket, into: Sequence[Bytes], deadline_s: float, arrived: Arrived = nobody) -> None:
        """Fill `into` (sizes as in the ticket), first to last; `arrived` may look at what has come while the rest still comes. Raises
        TransferFailed, at the latest at the deadline; then `into` is garbage, nothing writes to it any more, and `arrived` is not
        called any more."""

    @abstractmethod
    def withdraw(self, ticket: Ticket) -> bool:
        """End the offer. True: nobody reads its blocks any more. False: a reader may still be at it until the offer's deadline."""

    @abstractmethod
    def close(self) -> None:
        """Every offer ends; memory is unregistered."""
