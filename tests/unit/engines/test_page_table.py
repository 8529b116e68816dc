"""Pages are charged and released in pairs, and found only under their own key."""

from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.engines.page_table import ROOT, PageTable, block_key
from gyre_hpc.protocol.identity import Version

V0, V1 = Version(0, 0), Version(0, 1)


def test_a_key_tells_tokens_order_parent_and_version_apart() -> None:
    base = block_key(ROOT, b"0.0", [1, 2])
    others = [
        block_key(ROOT, b"0.1", [1, 2]),
        block_key(ROOT, b"mixed", [1, 2]),
        block_key(ROOT, b"0.0", [2, 1]),
        block_key(base, b"0.0", [1, 2]),
    ]
    assert len({base, *others}) == 5
    assert block_key(ROOT, b"0.0", (1, 2)) == base


def test_the_page_released_longest_ago_goes_first() -> None:
    table = PageTable(2)
    first, second = table.take(), table.take()
    assert first is not None and second is not None and table.take() is None
    table.publish(first, b"a", V0)
    table.publish(second, b"b", V0)
    table.release(first)
    table.release(second)
    assert table.take() == first
    assert table.find(b"a") is None
    assert table.find(b"b") == second
    assert table.oldest(second) == V0
    table.check()


def test_a_held_page_is_never_given_away_or_forgotten() -> None:
    table = PageTable(1)
    page = table.take()
    assert page is not None
    table.publish(page, b"a", V1)
    table.forget_cached()
    assert table.take() is None
    assert table.find(b"a") == page
    table.release(page)
    assert table.num_held == 1
    table.release(page)
    assert table.num_held == 0
    table.forget_cached()
    assert table.find(b"a") is None
    table.check()


@given(st.lists(st.tuples(st.sampled_from(["take", "publish", "release", "find", "forget"]), st.integers(0, 5)), max_size=80))
def test_any_order_of_uses_keeps_the_books_even(uses: list[tuple[str, int]]) -> None:
    table = PageTable(4)
    held: list[int] = []
    named: dict[bytes, int] = {}
    for use, number in uses:
        key = bytes([number])
        if use == "take" and (page := table.take()) is not None:
            assert page not in held
            named = {k: p for k, p in named.items() if p != page}
            held.append(page)
        elif use == "publish" and held and key not in named and held[number % len(held)] not in named.values():
            table.publish(held[number % len(held)], key, V0)
            named[key] = held[number % len(held)]
        elif use == "release" and held:
            table.release(held.pop(number % len(held)))
        elif use == "find":
            page = table.find(key)
            assert page == named.get(key)
            if page is not None:
                held.append(page)
        elif use == "forget":
            table.forget_cached()
            named = {k: p for k, p in named.items() if p in held}
        table.check()
        assert table.num_held == len(set(held))
