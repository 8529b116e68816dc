"""What a conversation is called, what is wanted of it, and where a reservation stops."""

import pytest

from gyre_hpc.engines.base import Block
from gyre_hpc.engines.kv_pages import KvPages
from gyre_hpc.engines.page_table import ROOT, PageTable
from gyre_hpc.protocol.identity import Version
from tests.fakes.kv_books import NUM_KEPT, NUM_PAGES, SIZE, keys


def computed(pages: KvPages, table: PageTable, name: str, chain: tuple[int, ...]) -> None:
    """A call that ran and is over."""
    parent, held = ROOT, []
    for key in keys(chain, Version()):
        page = table.find(key)
        if page is None:
            page = table.take()
            assert page is not None
            table.publish(page, key, Version(), parent)
        held.append(page)
        table.conversations.reach(name, [key])
        parent = key
    for page in reversed(held):
        table.release(page)


def two_engines() -> tuple[KvPages, PageTable, KvPages, PageTable]:
    one, other = PageTable(NUM_PAGES), PageTable(NUM_PAGES)
    return (
        KvPages(one, page_size=SIZE, num_kept=NUM_KEPT), one,
        KvPages(other, page_size=SIZE, num_kept=NUM_KEPT), other,
    )  # fmt: skip


def test_the_newest_call_of_a_chain_names_the_conversation() -> None:
    pages, table, _, _ = two_engines()
    computed(pages, table, "a/0", (0, 1))
    computed(pages, table, "a/3", (0, 1, 1))
    computed(pages, table, "b/0", (0, 1))
    assert [(one.call, one.num_tokens) for one in pages.conversations()] == [("b/0", 4), ("a/3", 6)]
    computed(pages, table, "a/4", (0, 0))
    assert {one.call for one in pages.conversations()} == {"a/3", "a/4", "b/0"}


def test_a_live_call_is_not_superseded() -> None:
    pages, table, _, _ = two_engines()
    table.conversations.begin("a/0")
    computed(pages, table, "a/0", (0, 1))
    computed(pages, table, "a/1", (0, 1, 1))
    assert [(one.call, one.is_live) for one in pages.conversations()] == [("a/1", False), ("a/0", True)]


def test_only_lacking_pages_are_wanted_and_the_conversation_is_known_at_its_new_place() -> None:
    pages, table, others, other_table = two_engines()
    computed(pages, table, "a/0", (0, 1, 0))
    computed(others, other_table, "b/0", (0, 1))
    blocks = pages.blocks(pages.lease(("a/0", "unknown/7")))
    reservation = others.reserve(Version(), blocks)
    assert (reservation.wanted, reservation.num_blocks) == ((2,), 3)
    assert others.publish(reservation.number, (0,), Version()) == (0,)
    others.cancel(reservation.number)
    assert {one.call: one.num_tokens for one in others.conversations()} == {"a/0": 6, "b/0": 4}


def test_a_conversation_cut_short_is_known_by_what_came_of_it() -> None:
    pages, table, others, _ = two_engines()
    computed(pages, table, "a/0", (0, 1, 0, 1))
    blocks = pages.blocks(pages.lease(("a/0",)))
    reservation = others.reserve(Version(), blocks)
    assert others.publish(reservation.number, (0, 1, 2), Version()) == (0, 1, 2)
    others.cancel(reservation.number)
    assert [(one.call, one.num_tokens) for one in others.conversations()] == [("a/0", 6)]


def test_what_comes_before_its_parent_waits_for_it() -> None:
    pages, table, others, _ = two_engines()
    computed(pages, table, "a/0", (0, 1, 0, 1))
    reservation = others.reserve(Version(), pages.blocks(pages.lease(("a/0",))))
    assert others.publish(reservation.number, (1, 3), Version()) == ()
    assert others.publish(reservation.number, (0,), Version()) == (0, 1)
    others.cancel(reservation.number)
    assert [(one.call, one.num_tokens) for one in others.conversations()] == [("a/0", 4)]


def test_a_reservation_stops_where_room_ends() -> None:
    pages, table, others, other_table = two_engines()
    computed(pages, table, "a/0", (0,) * 10)
    blocks = pages.blocks(pages.lease(("a/0",)))
    first = others.reserve(Version(), blocks)
    assert (len(first.wanted), first.num_blocks) == (NUM_PAGES - NUM_KEPT, NUM_PAGES - NUM_KEPT)
    assert others.room() == 0 and others.reserve(Version(), blocks).wanted == ()
    others.cancel(first.number)
    assert other_table.num_available == NUM_PAGES


@pytest.mark.parametrize(
    ("field", "blocks"),
    [
        ("blocks[0].key", (Block(key=b"short", parent=ROOT, oldest=Version(), num_tokens=SIZE),)),
        ("blocks[0].parent", (Block(key=b"k" * 16, parent=b"p" * 16, oldest=Version(), num_tokens=SIZE),)),
        ("blocks[0].num_tokens", (Block(key=b"k" * 16, parent=ROOT, oldest=Version(), num_tokens=SIZE + 1),)),
        ("blocks[1].key", (Block(key=b"k" * 16, parent=ROOT, oldest=Version(), num_tokens=SIZE),) * 2),
    ],
)  # fmt: skip
def test_a_wrong_block_is_named(field: str, blocks: tuple[Block, ...]) -> None:
    pages, table, _, _ = two_engines()
    with pytest.raises(ValueError, match=field.replace("[", r"\[").replace("]", r"\]")):
        pages.reserve(Version(), blocks)
    assert table.num_held == 0
