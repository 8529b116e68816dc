"""Ids are written as they are, remembered or not, and no more is remembered than allowed."""

import orjson
from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.gateway.ids_text import IdsText
from gyre_hpc.protocol.tensors import pack_ids

_ids = st.lists(st.integers(0, 2**31 - 1), max_size=5) | st.integers(60, 90).map(lambda num: list(range(num)))


@given(st.lists(st.lists(_ids, max_size=4), max_size=12), st.integers(0, 3000))
def test_lists_are_the_ids_of_all_pieces(prompts: list[list[list[int]]], most_bytes: int) -> None:
    text = IdsText(most_bytes)
    for prompt in prompts:
        assert orjson.loads(text.list_of([pack_ids(ids) for ids in prompt])) == [id for ids in prompt for id in ids]
        assert text._num_bytes == sum(len(piece) + len(known) + 250 for piece, known in text._known.items()) <= most_bytes


def test_a_piece_is_written_once() -> None:
    text, piece = IdsText(), pack_ids(list(range(1000)))
    text.list_of([piece])
    text._known[piece] = b"7"
    assert text.list_of([piece, pack_ids([1]), bytes(bytearray(piece))]) == b"[7,1,7]"
