"""Stop strings in tokens that come one by one: exactly those of the whole text, for the price of a short tail."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from gyre_hpc.engines.request import Request
from gyre_hpc.engines.stopping import Decode, Stopping, StopWatch

PIECES = [b"a", b"b", b"ab", b"", b"\xc3", b"\xa9", b"\xe2\x82", b"\xac", "日".encode(), b"ba ba", b"\xff", b"", b" "]
TEXTS = st.text(alphabet="abé€日 ", min_size=1, max_size=5)
IDS = st.lists(st.integers(0, len(PIECES) - 1), max_size=40)


def decode(ids: Sequence[int]) -> str:
    return b"".join(PIECES[i] for i in ids).decode("utf-8", errors="replace")


def decode_dropping_a_first_space(ids: Sequence[int]) -> str:
    return decode(ids).removeprefix(" ")


def request(stop: tuple[str, ...] = (), stop_ids: tuple[int, ...] = (), longest: int = 100, ids: Sequence[int] = (1,), position: int = 0):
    return Request(
        rid="r",
        input_ids=tuple(ids),
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        max_new_tokens=longest,
        stop_ids=frozenset(stop_ids),
        key=b"k",
        position=position,
        return_logprob=True,
        stream=True,
        incremental=True,
        stop=stop,
    )


def end_in_whole(ids: list[int], stop: list[str], decode: Decode) -> tuple[int, str] | None:
    """(tokens up to the end, what matched) by decoding everything after every token."""
    for n in range(1, len(ids) + 1):
        found = [(text.find(s), index) for text in [decode(ids[:n])] for index, s in enumerate(stop) if s in text]
        if found:
            return n, stop[min(found)[1]]
    return None


@settings(max_examples=500)
@given(
    decode=st.sampled_from([decode, decode_dropping_a_first_space]),
    ids=IDS,
    stop=st.lists(TEXTS, min_size=1, max_size=3),
    cut=st.integers(0, 40),
)
def test_the_end_is_that_of_the_whole_text_wherever_the_answer_was_cut(decode: Decode, ids: list[int], stop: list[str], cut: int) -> None:
    expected = end_in_whole(ids, stop, decode)
    cut = min(cut, len(ids))
    prompt = [0, 1, 2, *ids[:cut]]
    stopping = Stopping(request(tuple(stop), ids=prompt, position=cut), decode)
    if expected is not None and expected[0] <= cut:
        if expected[0] == cut:
            assert stopping.at_once() == {"type": "stop", "matched": expected[1]}
        return
    assert stopping.at_once() is None
    got = None
    for n in range(cut, len(ids)):
        finish = stopping.after(ids[n], n + 1 - cut)
        if finish is not None:
            got = (n + 1, finish["matched"])
            break
    assert got == expected


def test_a_token_costs_a_short_tail_whatever_the_length_of_the_answer() -> None:
    lengths: list[int] = []

    def counting(ids: Sequence[int]) -> str:
        lengths.append(len(ids))
        return decode(ids)

    before = [0, 3] * 50_000
    watch = StopWatch(["abab", "ba ba ba"], counting, reversed(before))
    assert len(lengths) <= 2 * 12 + 1
    lengths.clear()
    for _ in range(100):
        assert watch.feed(0) is None
    assert sum(lengths) <= 100 * (2 + 8 + 4)


def test_ids_without_text_push_nothing_out_of_the_tail() -> None:
    watch = StopWatch(["ab"], decode, [])
    assert watch.feed(0) is None
    for _ in range(1000):
        assert watch.feed(3) is None
    assert watch.feed(1) == "ab"


def test_a_stop_token_goes_before_a_stop_string_and_both_before_the_length() -> None:
    def last(**asked) -> object:
        return Stopping(request(**asked), decode).after(2, 1)

    assert last(stop=("ab",), stop_ids=(2,), longest=1) == {"type": "stop", "matched": 2}
    assert last(stop=("ab",), longest=1) == {"type": "stop", "matched": "ab"}
    assert last(stop=("abc",), longest=1) == {"type": "length", "length": 1}
    assert last(stop=("abc",), longest=2) is None


def test_of_several_the_string_that_begins_first_is_told() -> None:
    assert StopWatch(["b", "ab", "a"], decode, []).feed(2) == "ab"
    assert StopWatch(["b", "a", "ab"], decode, []).feed(2) == "a"


def test_a_script_without_tokens_is_over_at_once() -> None:
    assert Stopping(request(), None, longest=0).at_once() == {"type": "length", "length": 0}
    assert Stopping(request(), None, longest=1).at_once() is None
