"""Nothing that calls, leases, reservations and updates do in any order breaks the books of the pages."""

from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gyre_hpc.engines.base import Block
from gyre_hpc.engines.kv_pages import KvPages, check_blocks
from gyre_hpc.engines.page_table import ROOT, PageTable
from gyre_hpc.protocol.identity import Version
from tests.fakes.kv_books import NUM_KEPT, NUM_PAGES, SIZE, blocks_of, keys

CHAINS = st.lists(st.integers(0, 1), min_size=1, max_size=5).map(tuple)
CALLS = st.sampled_from(["a/0", "a/1", "a/2", "b/0", "b/1", ""])


@dataclass
class Call:
    """A call as the engines' cores hold pages for it."""

    name: str
    pages: list[int]


@dataclass
class Lent:
    pages: tuple[int, ...]
    contents: list[bytes] = field(default_factory=list)


@dataclass
class Coming:
    version: Version
    blocks: tuple[Block, ...]
    """Wanted."""
    pages: list[int]
    published: set[int] = field(default_factory=set)

    def unpublished(self) -> list[tuple[Block, int]]:
        return [(self.blocks[place], page) for place, page in enumerate(self.pages) if place not in self.published]


class Books(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = PageTable(NUM_PAGES)
        self.pages = KvPages(self.table, page_size=SIZE, num_kept=NUM_KEPT)
        self.version = Version(0, 0)
        self.content: dict[int, bytes] = {}
        self.calls: list[Call] = []
        self.leases: dict[int, Lent] = {}
        self.reservations: dict[int, Coming] = {}

    @rule(name=CALLS, chain=CHAINS)
    def a_call_computes(self, name: str, chain: tuple[int, ...]) -> None:
        wanted, pages = keys(chain, self.version), list[int]()
        book = self.table.conversations
        for key in wanted:
            page = self.table.find(key)
            if page is None:
                break
            pages.append(page)
        book.begin(name)
        book.reach(name, wanted[: len(pages)])
        for index in range(len(pages), len(wanted)):
            page = self.table.take()
            if page is None:
                break
            self.write(page, wanted[index])
            self.table.publish(page, wanted[index], self.version, wanted[index - 1] if index else ROOT)
            pages.append(page)
            book.reach(name, [wanted[index]])
        self.calls.append(Call(name, pages))

    @precondition(lambda self: self.calls)
    @rule(number=st.integers(0, 9))
    def a_call_ends(self, number: int) -> None:
        call = self.calls.pop(number % len(self.calls))
        for page in reversed(call.pages):
            self.table.release(page)
        self.table.conversations.end(call.name)

    @rule(names=st.lists(CALLS, unique=True))
    def lease(self, names: list[str]) -> None:
        known = {one.call: one for one in self.pages.conversations()}
        lease = self.pages.lease(tuple(names))
        blocks = self.pages.blocks(lease)
        check_blocks(blocks, SIZE)
        pages = self.pages.leased(lease)
        assert [self.content[page] for page in pages] == [block.key for block in blocks]
        assert {call for block in blocks for call in block.calls} == set(names) & set(known)
        self.leases[lease] = Lent(pages, [block.key for block in blocks])

    @precondition(lambda self: self.leases)
    @rule(number=st.integers(0, 9))
    def a_lease_ends(self, number: int) -> None:
        lease = list(self.leases)[number % len(self.leases)]
        del self.leases[lease]
        self.pages.release(lease)
        self.pages.release(lease)

    @rule(chains=st.lists(st.tuples(CALLS, CHAINS), max_size=3))
    def reserve(self, chains: list[tuple[str, tuple[int, ...]]]) -> None:
        blocks = blocks_of(chains, self.version)
        reservation = self.pages.reserve(self.version, blocks)
        wanted = reservation.wanted
        assert list(wanted) == sorted(set(wanted)) and all(index < reservation.num_blocks for index in wanted)
        pages = list(self.pages.reserved(reservation.number, 0, len(wanted)))
        for index, page in zip(wanted, pages, strict=True):
            self.write(page, b"coming " + blocks[index].key)
        self.reservations[reservation.number] = Coming(self.version, tuple(blocks[index] for index in wanted), pages)

    @precondition(lambda self: self.reservations)
    @rule(number=st.integers(0, 9), places=st.sets(st.integers(0, 6)))
    def pages_come(self, number: int, places: set[int]) -> None:
        name = list(self.reservations)[number % len(self.reservations)]
        coming = self.reservations[name]
        found = self.pages.publish(name, tuple(places), self.version)
        assert not found or coming.version == self.version
        assert coming.published.isdisjoint(found) and list(found) == sorted(found)
        if coming.version == self.version and places >= set(range(len(coming.blocks))):
            assert coming.published | set(found) == set(range(len(coming.blocks)))
        for place in found:
            block, page = coming.blocks[place], coming.pages[place]
            assert self.content[page] == b"coming " + block.key
            self.content[page] = block.key
            assert self.table.depth(block.key)
        coming.published.update(found)

    @precondition(lambda self: self.reservations)
    @rule(number=st.integers(0, 9))
    def a_reservation_ends(self, number: int) -> None:
        name = list(self.reservations)[number % len(self.reservations)]
        del self.reservations[name]
        self.pages.cancel(name)
        self.pages.cancel(name)
        assert self.pages.publish(name, (0,), self.version) == ()

    @rule()
    def an_update_comes(self) -> None:
        for _ in list(self.calls):
            self.a_call_ends(0)
        self.table.forget_cached()
        self.table.conversations.forget()
        self.version = Version(0, self.version.step + 1)

    @rule()
    def the_cache_is_flushed(self) -> None:
        self.table.forget_cached()

    @invariant()
    def books_agree(self) -> None:
        self.pages.check()
        assert (self.pages.num_leases, self.pages.num_reservations) == (len(self.leases), len(self.reservations))

    @invariant()
    def what_is_leased_keeps_its_content(self) -> None:
        for lent in self.leases.values():
            assert [self.content[page] for page in lent.pages] == lent.contents

    @invariant()
    def a_call_of_the_longest_context_fits_beside_what_others_hold(self) -> None:
        if not self.leases:
            held = {page for call in self.calls for page in call.pages}
            assert self.table.num_available >= NUM_KEPT - len(held) and self.pages.room() <= self.table.num_available

    @invariant()
    def pages_on_their_way_are_found_by_nobody(self) -> None:
        for coming in self.reservations.values():
            for block, page in coming.unpublished():
                assert self.content[page] == b"coming " + block.key
                assert not self.table.is_keyed(page)

    @invariant()
    def nothing_is_held_when_all_is_over(self) -> None:
        if not (self.calls or self.leases or self.reservations):
            assert self.table.num_held == 0 and not self.pages.is_lending

    def write(self, page: int, content: bytes) -> None:
        """A page that is written is nobody else's."""
        assert all(page not in lent.pages for lent in self.leases.values())
        assert all(page != other for coming in self.reservations.values() for _, other in coming.unpublished())
        assert all(page not in call.pages for call in self.calls)
        self.content[page] = content


Books.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestBooks = Books.TestCase
