import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.errors import TransferFailed
from gyre_hpc.transport.kv_blocks import arriving, pieces, sizes_of


@given(st.lists(st.integers(0, 40), max_size=12), st.integers(1, 25))
def test_pieces_are_the_blocks_bytes_in_order_and_full_but_for_the_last(sizes, piece_bytes):
    whole = np.random.default_rng(0).integers(0, 255, sum(sizes), dtype=np.uint8)
    blocks = np.split(whole, np.cumsum(sizes)[:-1]) if sizes else []
    cut = [np.concatenate(piece) for piece in pieces(blocks, piece_bytes)]
    assert b"".join(piece.tobytes() for piece in cut) == whole.tobytes()
    assert all(piece.size == piece_bytes for piece in cut[:-1])
    assert all(piece.size for piece in cut)


@given(st.lists(st.integers(0, 40), max_size=12), st.integers(1, 25))
def test_blocks_of_equal_sizes_are_cut_at_the_same_places(sizes, piece_bytes):
    left, right = ([np.zeros(size, np.uint8) for size in sizes] for _ in range(2))
    cuts = [[[part.size for part in piece] for piece in pieces(blocks, piece_bytes)] for blocks in (left, right)]
    assert cuts[0] == cuts[1]


@given(st.lists(st.integers(0, 40), max_size=12), st.integers(1, 25), st.integers(1, 5))
def test_as_many_blocks_are_whole_as_the_pieces_so_far_hold(sizes, piece_bytes, max_parts):
    come = 0
    for piece, num_whole in arriving([np.zeros(size, np.uint8) for size in sizes], piece_bytes, max_parts):
        assert 0 < len(piece) <= max_parts
        come += sum(part.size for part in piece)
        whole = [end for end, size in zip(np.cumsum(sizes), sizes, strict=True) if size and end <= come]
        assert sum(size > 0 for size in sizes[:num_whole]) == len(whole)
    assert come == sum(sizes)


@pytest.mark.parametrize("block", [np.zeros(4, np.int32), np.zeros((2, 2), np.uint8), np.zeros(8, np.uint8)[::2]])
def test_what_is_no_run_of_bytes_is_refused(block):
    with pytest.raises(TransferFailed, match="block 0"):
        sizes_of([block])
