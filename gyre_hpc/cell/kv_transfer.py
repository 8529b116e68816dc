"""KV of some conversations to one other cell: leased, offered piece by piece, taken, and let go.

A piece is some of the blocks that the target lacks. While it fetches one, the next is made ready (its checksums), so that neither
waits for the other. What was taken stays taken, whatever happens to the rest.

Invariant: the lease ends only when nobody reads its pages any more: when every offer is withdrawn, or over by its own deadline.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from gyre_hpc.cell import commands
from gyre_hpc.cell.crew import Crew
from gyre_hpc.cell.kv_client import KvClient
from gyre_hpc.cell.kv_intake import GRACE_S
from gyre_hpc.cell.kv_wire import Ask, Drop, Offered, Room, Take
from gyre_hpc.clock import monotonic_s
from gyre_hpc.engines.base import Block, PagedKV
from gyre_hpc.errors import TransferFailed
from gyre_hpc.shell.timers import after

FIRST_BYTES, LARGEST_BYTES = 4 << 20, 64 << 20
"""Of a piece of one rank. Nothing overlaps the first one's checksums, so it is small; each is twice the one before, so that round
trips of orders do not count, and that what is lost when the time is over is not much more than what has come."""
_OFFERED = msgspec.msgpack.Decoder(Offered)
_QUIET = msgspec.msgpack.Decoder(bool)


class KvTransfer:
    """`run` once, then `end` once. calls: in the order in which they matter."""

    def __init__(
        self, kv: PagedKV, crew: Crew, client: KvClient, *, source: str, target: str, calls: tuple[str, ...], until: float
    ) -> None:
        """until: monotonic time at which everything of it is over."""
        self._kv, self._crew, self._client, self._until = kv, crew, client, until
        self.source, self.target, self.calls = source, target, calls
        self.trouble = ""
        self.num_tokens = 0
        self._leasing: asyncio.Task[tuple[int, tuple[Block, ...]]] | None = None
        self._lease = 0
        self._blocks: tuple[Block, ...] = ()
        self._room = Room(0)
        self._arrived: set[int] = set()
        """Indices of blocks that are at the target since."""
        self._offering: asyncio.Task[tuple[Offered, ...]] | None = None
        self._offers: list[tuple[Offered, ...]] = []
        self._offered_until = 0.0

    async def run(self) -> None:
        """Move what can be moved. Troubles of the target end it, and are told in `trouble`. What it began of its own engine
        and ranks goes on when it is cancelled, and `end` waits for it."""
        header = self._kv.header()
        self._leasing = asyncio.ensure_future(self._kv.lease(self.calls))
        self._lease, self._blocks = await asyncio.shield(self._leasing)
        if not self._blocks:
            self.trouble = "nothing of it is here any more"
            return
        try:
            self._room = await self._client.ask(self.target, Ask(self.source, header, self._blocks, self._left_s()))
            if not self._room.reservation:
                raise TransferFailed(self._room.reason or "it takes nothing")
            await self._send()
            if self._room.num_blocks < len(self._blocks):
                self.trouble = self.trouble or f"room for {self._room.num_blocks} of {len(self._blocks)} blocks"
        except TransferFailed as error:
            self.trouble = str(error)

    def moved(self) -> tuple[str, ...]:
        """Conversations of which something arrived, or which are there altogether."""
        if not self._room.reservation:
            return ()
        missing = set(self._room.wanted) - self._arrived | set(range(self._room.num_blocks, len(self._blocks)))
        places = {block.key: index for index, block in enumerate(self._blocks)}
        found: set[str] = set()
        for block in self._blocks:
            if not block.calls:
                continue
            chain, key = list[int](), block.key
            while key in places:
                chain.append(places[key])
                key = self._blocks[places[key]].parent
            if missing.isdisjoint(chain) or not self._arrived.isdisjoint(chain):
                found.update(block.calls)
        return tuple(call for call in self.calls if call in found)

    async def end(self) -> None:
        """Tell the target that no more comes, and give the pages back as soon as nobody reads them."""
        if self._offering is not None:
            await asyncio.gather(self._offering, return_exceptions=True)
        if self._room.reservation:
            await self._client.tell(self.target, Drop(self._room.reservation), GRACE_S)
        if self._offers and not await self._withdraw():
            over = asyncio.Event()
            after(max(0.0, self._offered_until - monotonic_s()), over.set)
            await over.wait()
        if self._leasing is not None:
            lease, _ = await self._leasing
            await self._kv.release(lease)

    async def _send(self) -> None:
        pieces = cut_in_pieces(len(self._room.wanted), self._block_bytes())
        for number, (start, end) in enumerate(pieces):
            offers = await asyncio.shield(self._offering or self._begin_offer(start, end))
            self._offering = self._begin_offer(*pieces[number + 1]) if number + 1 < len(pieces) else None
            taken = await self._client.take(self.target, Take(self._room.reservation, start, end, offers, self._left_s()))
            self._note(taken.published)
            self.trouble = self.trouble or taken.trouble
            if not taken.published and taken.trouble:
                return

    def _begin_offer(self, start: int, end: int) -> "asyncio.Task[tuple[Offered, ...]]":
        self._offering = asyncio.ensure_future(self._offer(start, end))
        return self._offering

    def _note(self, published: Sequence[int]) -> None:
        indices = {self._room.wanted[place] for place in published} - self._arrived
        self._arrived |= indices
        self.num_tokens += sum(self._blocks[index].num_tokens for index in indices)

    async def _offer(self, start: int, end: int) -> tuple[Offered, ...]:
        left_s = self._left_s()
        command = commands.KvOffer(self._lease, self._room.wanted[start:end], left_s)
        offers = tuple(_OFFERED.decode(told) for told in await self._crew.ask_each(command, left_s + GRACE_S))
        self._offers.append(offers)
        self._offered_until = max(self._offered_until, monotonic_s() + left_s)
        if trouble := "; ".join(one.trouble for one in offers if one.trouble):
            raise TransferFailed(f"nothing can be offered: {trouble}")
        return offers

    async def _withdraw(self) -> bool:
        tickets = tuple(tuple(one.ticket for one in ranks if one.ticket is not None) for ranks in zip(*self._offers, strict=True))
        told = await self._crew.ask_each(commands.KvWithdraw(tickets), GRACE_S)
        return all(_QUIET.decode(one) for one in told)

    def _block_bytes(self) -> int:
        pages = self._kv.page_bytes()
        return pages.block_bytes if pages is not None else FIRST_BYTES // 64

    def _left_s(self) -> float:
        left_s = self._until - monotonic_s()
        if left_s <= 0:
            raise TransferFailed("the time for it is over")
        return left_s


def cut_in_pieces(num_wanted: int, block_bytes: int) -> list[tuple[int, int]]:
    """Places [start, end) of each piece."""
    pieces, start, size = list[tuple[int, int]](), 0, FIRST_BYTES
    while start < num_wanted:
        end = min(num_wanted, start + max(1, size // max(1, block_bytes)))
        pieces.append((start, end))
        start, size = end, min(2 * size, LARGEST_BYTES)
    return pieces
