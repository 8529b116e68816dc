"""What a cell needs of an inference engine, whichever kind.

The gateway never sees this class: it speaks SGLang's native HTTP API to the URL that `start` returns (POST /generate, ...). That
surface lies in the rank process for every kind, a foreign server behind it: it alone refuses with 409 and a term
(docs/decisions/0010).
The cell leader drives role switches and weights through these methods. All methods may be called from the leader's
asyncio loop; `sleep` and `wake` act on every rank of the cell and return one figure per rank.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.to_batch import RankMemory
from gyre_hpc.scheduler.migration import Conversation


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineCapabilities:
    """What the rest may count on."""

    kv: str
    """none, pages, pd or shared (DESIGN §4)."""
    sampling: str
    """`counter`: a moved or replayed call draws the same tokens; `own`: it does not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """One full page of a conversation, by key (engines/page_table.py). Parents come before children in every list."""

    key: bytes
    parent: bytes
    """Key of the block before it; empty for the first."""
    oldest: Version
    """Oldest version whose KV is in it or before it in its chain."""
    num_tokens: int
    calls: tuple[str, ...] = ()
    """Conversations whose last full page it is: the target knows them from then on, and can pass them on in its turn."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KvHeader:
    """What both ends of a transfer must agree on; a target that differs in any field takes nothing."""

    version: Version
    """Served by the source, and by the target."""
    layout: str
    """Digest of everything a page's bytes depend on: model shape, page size, dtype, ranks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reservation:
    """Room for blocks that come from elsewhere. It is open until it is cancelled."""

    number: int
    """0: nothing is reserved, and there is nothing to cancel."""
    wanted: tuple[int, ...] = ()
    """Indices of the blocks that are not here and have room, in order."""
    num_blocks: int = 0
    """Leading blocks that are here or wanted; after them there was no room."""


class PagedKV(ABC):
    """Capability `pages`: full pages of KV can be read out and put in while the engine computes.

    All methods act on every rank of the cell alike, between two steps. Bytes move beside this interface: each rank reads
    pages that are leased, and writes pages that are reserved (engines/kv_pages.py), in a thread of its own.
    Invariants: a page that is leased or reserved is neither freed nor overwritten; a reserved page cannot be found before it
    is published; what is published has its whole chain here.
    """

    @abstractmethod
    def header(self) -> KvHeader:
        """Raises AssertionError while the engine sleeps."""

    @abstractmethod
    async def conversations(self) -> tuple[Conversation, ...]:
        """Those with at least one full page here, newest call of each, the most recently used first."""

    @abstractmethod
    async def lease(self, calls: tuple[str, ...]) -> tuple[int, tuple[Block, ...]]:
        """Hold the pages of these conversations: (lease number, blocks, each once). Unknown calls are left out."""

    @abstractmethod
    async def release(self, lease: int) -> None:
        """Nobody reads them any more. A lease that is over is ignored."""

    @abstractmethod
    def num_leases(self) -> int: ...

    @abstractmethod
    async def reserve(self, header: KvHeader, blocks: tuple[Block, ...]) -> Reservation:
        """Make room for the blocks that are not here. As many as there is room for, parents first; none while the engine's
        admission is closed, or when the header differs. Raises ValueError naming a field that is wrong in itself."""

    @abstractmethod
    async def publish(self, reservation: int, arrived: tuple[int, ...]) -> tuple[int, ...]:
        """The wanted blocks at these places (0 = the first wanted one) have their content. They can be found from now on, as
        far as those before them in their chains are here; the others follow when those come. Returns the places of all that
        can be found since this call: none when the version served has changed meanwhile, or the reservation is over."""

    @abstractmethod
    async def cancel(self, reservation: int) -> None:
        """Nobody writes any more: what was not published is free again. A reservation that is over is ignored."""

    @abstractmethod
    def num_reservations(self) -> int: ...

    @abstractmethod
    def free_tokens(self) -> int:
        """Room for KV from elsewhere, in tokens; 0 while the engine sleeps."""

    @abstractmethod
    def page_bytes(self) -> "PageBytes | None":
        """Where this rank's pages lie while the engine is awake; None: there are no bytes to move (timed)."""


class PageBytes(ABC):
    """The memory of one rank's pages, for the thread that moves them. It goes with the engine's next sleep: who holds a view
    longer than that holds the memory."""

    memory: npt.NDArray[np.uint8]
    """All of it [bytes]."""
    block_bytes: int
    """Of one page."""

    @abstractmethod
    def leased(self, lease: int, indices: Sequence[int]) -> list[npt.NDArray[np.uint8]]:
        """Views [bytes of a page] of blocks of a lease. Raises KeyError when it is over, IndexError on an index of no block."""

    @abstractmethod
    def reserved(self, reservation: int, start: int, end: int) -> list[npt.NDArray[np.uint8]]:
        """Views of the wanted blocks [start, end) of a reservation, to be written. Raises KeyError when it is over, ValueError
        on those that are published."""


class Engine(ABC):
    """One cell's engine. Admission starts closed.

    Lifecycle: start -> (asleep) -> wake(version) -> open_admission(term) -> ... -> close_admission -> abort_all ->
    sleep -> wake ... -> close.
    """

    capabilities: EngineCapabilities
    kv: PagedKV | None = None
    """Set exactly when capabilities.kv is `pages`."""

    @abstractmethod
    async def start(self) -> str:
        """Start serving HTTP and return the base URL. The engine is asleep, admission closed."""

    def cut(self) -> None:  # noqa: B027  (a server of its own is no connection of ours)
        """As the end of this process does: connections of its clients are gone, whatever was under way. close() follows."""

    @abstractmethod
    async def close(self) -> None:
        """Stop; live requests end with finish_reason abort and their tokens so far."""

    @abstractmethod
    def open_admission(self, term: int) -> None:
        """Take requests from now on."""

    @abstractmethod
    def close_admission(self, term: int) -> None:
        """Answer every later /generate with 409 {"error", "term"}; never park one."""

    @abstractmethod
    def num_live(self) -> int:
        """Requests taken and not answered to the end."""

    def failure(self) -> str | None:
        """Why the engine is broken for good; None: it is not."""
        return None

    def pids(self) -> tuple[int, ...]:
        """Of processes of its own, beside the cell's ranks."""
        return ()

    @abstractmethod
    async def abort_all(self, moved: Mapping[str, str]) -> int:
        """End every live request with finish_reason abort, its tokens kept, answer sent; return how many.

        moved: call -> cell that has its KV now; told to the client as finish_reason.moved_to."""

    @abstractmethod
    async def sleep(self) -> list[RankMemory]:
        """Release device memory. Raises AssertionError while requests are live (verify zero first)."""

    @abstractmethod
    async def wake(self, version: Version) -> list[RankMemory]:
        """Take memory again and serve `version` from the cell's own snapshot store."""

    @abstractmethod
    async def update_weights(self, version: Version) -> None:
        """Between two decode steps, go over to `version` from the cell's own snapshot store. Live requests go on
        (recompute: their KV is rebuilt; keep: it stays under a mixed key). Raises KeyError if the store lacks it."""

    @abstractmethod
    def counters(self) -> dict[str, int]:
        """sampled, prefilled, cached, decode_steps since start."""

    @abstractmethod
    def curve(self) -> dict[int, float]:
        """Measured decode throughput (tokens/s of the whole engine) by number of running requests."""
