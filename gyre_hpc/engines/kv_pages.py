"""Pages given to other engines, and taken from them: leases and reservations on one page table. No bytes, no torch, no loop.

    lease:        here ─lease─▶ held, read by others ─release─▶ as before
    reservation:  reserve ─▶ held, written, not found by key ─publish─▶ found, held ─cancel─▶ found, or free if not published

Every rank of a cell keeps the same books, as it is given the same calls in the same order.

Invariants (a state machine in the tests tries to break them): a page that is leased or reserved is neither freed nor written
by anybody else; what is published has its whole chain here; reservations leave room for one call of the longest context;
when nothing is lent, nothing is held that no call holds.
"""

import itertools
from collections.abc import Iterator, Sequence

from gyre_hpc.engines.base import Block, Reservation
from gyre_hpc.engines.page_table import KEY_BYTES, ROOT, PageTable
from gyre_hpc.protocol.identity import Version
from gyre_hpc.scheduler.migration import Conversation


class _Taking:
    """One reservation: `pages[i]` is for `blocks[i]`; `wanted[place]` is such an i, of a block that is to come."""

    def __init__(self, version: Version, blocks: tuple[Block, ...], pages: list[int], wanted: list[int]) -> None:
        self.version, self.blocks, self.pages, self.wanted = version, blocks, pages, wanted
        self.arrived: list[int] = []
        """Places whose content is here and that wait for what is before them."""
        self.published: set[int] = set()


class KvPages:
    """num_kept: pages that reservations leave to the calls of this engine."""

    def __init__(self, table: PageTable, *, page_size: int, num_kept: int) -> None:
        self._table, self._page_size, self._num_kept = table, page_size, num_kept
        self.numbers: Iterator[int] = itertools.count(1)
        """Of leases and reservations."""
        self._leases: dict[int, tuple[int, ...]] = {}
        self._leased: dict[int, tuple[Block, ...]] = {}
        self._taking: dict[int, _Taking] = {}

    @property
    def num_leases(self) -> int:
        return len(self._leases)

    @property
    def num_reservations(self) -> int:
        return len(self._taking)

    @property
    def is_lending(self) -> bool:
        """Pages are held here for others: a call that finds no room gets some when that ends."""
        return bool(self._leases or self._taking)

    def room(self) -> int:
        """Pages that a reservation could get now."""
        return max(0, min(self._table.num_available, self._most()))

    def _most(self) -> int:
        """Longest list of blocks, here or wanted, that leaves the calls of this engine their pages."""
        # Copies: another thread may look at the room while this one lends.
        lent = {page for pages in tuple(self._leases.values()) for page in pages}
        lent.update(page for taking in tuple(self._taking.values()) for page in taking.pages)
        return self._table.num_pages - self._num_kept - len(lent)

    def conversations(self) -> tuple[Conversation, ...]:
        """The most recently used first."""
        book = self._table.conversations
        return tuple(
            Conversation(call=call, num_tokens=self._table.depth(key) * self._page_size, is_live=book.is_live(call))
            for call, key in book.tips()
        )

    def lease(self, calls: Sequence[str]) -> int:
        """Hold the chains of these conversations. Unknown calls are left out. Returns its number."""
        ends: dict[bytes, list[str]] = {}
        for call in calls:
            key = self._table.conversations.tip(call)
            if key is not None:
                ends.setdefault(key, []).append(call)
        blocks: dict[bytes, Block] = {}
        for end in ends:
            for one in self._table.chain(end):
                named = tuple(ends.get(one.key, ()))
                blocks[one.key] = Block(key=one.key, parent=one.parent, oldest=one.oldest, num_tokens=self._page_size, calls=named)
        number = next(self.numbers)
        self._leases[number], self._leased[number] = tuple(self._held(key) for key in blocks), tuple(blocks.values())
        return number

    def blocks(self, lease: int) -> tuple[Block, ...]:
        """Parents first, each once. None when it is over."""
        return self._leased.get(lease, ())

    def release(self, lease: int) -> None:
        """Nobody reads them any more. A lease that is over is ignored."""
        self._leased.pop(lease, None)
        self._give_back(self._leases.pop(lease, ()))

    def leased(self, lease: int) -> tuple[int, ...]:
        """Pages of its blocks, in order. Raises KeyError when it is over."""
        return self._leases[lease]

    def reserve(self, version: Version, blocks: tuple[Block, ...]) -> Reservation:
        """Take pages for the blocks that are not here, parents first, until there is no more room. Raises ValueError on blocks
        that cannot be a list of ours (see `check_blocks`)."""
        check_blocks(blocks, self._page_size)
        pages, wanted = list[int](), list[int]()
        for index, block in enumerate(blocks[: max(0, self._most())]):
            page = self._table.find(block.key)
            if page is None:
                page = self._table.take()
                if page is None:
                    break
                wanted.append(index)
            pages.append(page)
        number = next(self.numbers)
        self._taking[number] = _Taking(version, blocks[: len(pages)], pages, wanted)
        return Reservation(number=number, wanted=tuple(wanted), num_blocks=len(pages))

    def reserved(self, reservation: int, start: int, end: int) -> tuple[int, ...]:
        """Pages of the places [start, end), to be written. Raises KeyError when it is over, ValueError on those published."""
        taking = self._taking[reservation]
        if not 0 <= start <= end <= len(taking.wanted):
            raise ValueError(f"places {start} to {end}: {len(taking.wanted)} blocks are wanted")
        if not taking.published.isdisjoint(range(start, end)):
            raise ValueError(f"places {start} to {end}: some are published, and do not change any more")
        return tuple(taking.pages[index] for index in taking.wanted[start:end])

    def publish(self, reservation: int, arrived: Sequence[int], version: Version) -> tuple[int, ...]:
        """What is at these places has come. Returns the places of what can be found since then: none when the reservation is
        over, or the engine serves another version now."""
        taking = self._taking.get(reservation)
        if taking is None or taking.version != version:
            return ()
        waiting = sorted({*taking.arrived, *(place for place in arrived if 0 <= place < len(taking.wanted))} - taking.published)
        found = []
        for place in waiting:
            if self._publish(taking, taking.wanted[place]):
                found.append(place)
        taking.published.update(found)
        taking.arrived = [place for place in waiting if place not in taking.published]
        return tuple(found)

    def _publish(self, taking: _Taking, index: int) -> bool:
        block, page = taking.blocks[index], taking.pages[index]
        if block.parent != ROOT and not self._table.depth(block.parent):
            return False
        twin = self._table.find(block.key)
        if twin is None:
            self._table.publish(page, block.key, block.oldest, block.parent)
        else:
            # Computed here meanwhile.
            self._table.release(page)
            taking.pages[index] = twin
        return True

    def cancel(self, reservation: int) -> None:
        """No more will come: what was not published is free again. One that is over is ignored."""
        taking = self._taking.pop(reservation, None)
        if taking is None:
            return
        self._name(taking)
        self._give_back(taking.pages)

    def check(self) -> None:
        """Assert what the module says (for tests)."""
        self._table.check()
        unpublished = [
            taking.pages[index]
            for taking in self._taking.values()
            for place, index in enumerate(taking.wanted)
            if place not in taking.published
        ]
        assert len(set(unpublished)) == len(unpublished)
        assert not any(self._table.is_keyed(page) for page in unpublished)

    def _held(self, key: bytes) -> int:
        page = self._table.find(key)
        assert page is not None
        return page

    def _give_back(self, pages: Sequence[int]) -> None:
        # The end of a chain first, as the table wants it.
        for page in reversed(pages):
            self._table.release(page)

    def _name(self, taking: _Taking) -> None:
        """Conversations that came are known here by the last page of theirs that is here. Ours know better."""
        book, parents = self._table.conversations, {block.key: block.parent for block in taking.blocks}
        for block in taking.blocks:
            if not block.calls:
                continue
            key = block.key
            while key != ROOT and not self._table.depth(key):
                key = parents[key]
            for call in block.calls:
                if key != ROOT and book.tip(call) is None:
                    book.reach(call, [one.key for one in self._table.chain(key)])


def check_blocks(blocks: Sequence[Block], page_size: int) -> None:
    """Raises ValueError naming the first field that no lease of an engine with this page size would hold."""
    seen = {ROOT}
    for index, block in enumerate(blocks):
        problem = ""
        if len(block.key) != KEY_BYTES or block.key in seen:
            problem = f"key={block.key.hex()!r}: make it {KEY_BYTES} bytes that no other block has"
        elif block.parent not in seen:
            problem = f"parent={block.parent.hex()!r}: make it empty or the key of a block before this one"
        elif block.num_tokens != page_size:
            problem = f"num_tokens={block.num_tokens}: make it {page_size}"
        if problem:
            raise ValueError(f"blocks[{index}].{problem}")
        seen.add(block.key)
