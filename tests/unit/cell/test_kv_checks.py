"""Checksums of KV blocks in threads of their own, and the pieces in which blocks travel."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.cell import kv_checks
from gyre_hpc.cell.kv_checks import Arriving, Checks
from gyre_hpc.cell.kv_transfer import FIRST_BYTES, LARGEST_BYTES, cut_in_pieces

MIB = 1 << 20


@pytest.fixture
def checks():
    made = Checks()
    yield made
    made.close()


def blocks(sizes):
    made = np.random.default_rng(0)
    return [made.integers(0, 256, size, dtype=np.uint8) for size in sizes]


@pytest.mark.parametrize("sizes", [[], [0], [5], [0, 0, 7], [4096] * 900, [3 * MIB, 1, 2 * MIB, 0, MIB], [MIB] * 9])
def test_sums_are_the_crc_of_each_block_in_order(checks, sizes):
    some = blocks(sizes)
    assert checks.of(some) == tuple(zlib.crc32(block.tobytes()) for block in some)


@given(st.lists(st.integers(0, 9), max_size=6))
def test_in_whatever_steps_blocks_arrive_each_is_summed_as_it_was_when_it_had_come(counts):
    checks, coming = Checks(), blocks([6000] * 9)
    into = [np.zeros(6000, dtype=np.uint8) for _ in coming]
    arriving = Arriving(checks, into)
    for count in sorted([*counts, 9]):
        for place in range(count):
            into[place][:] = coming[place]
        arriving.arrived(count)
    assert arriving.sums() == checks.of(coming)
    checks.close()


def test_sums_hold_what_has_come_and_nothing_else(checks):
    some = blocks([6000] * 3)
    arriving = Arriving(checks, some)
    assert arriving.sums() == ()
    arriving.arrived(2)
    assert arriving.sums() == checks.of(some[:2])


def test_nobody_looks_at_blocks_any_more_when_sums_has_raised(checks, monkeypatch):
    """A broken check does not leave its neighbours running on memory that is somebody else's by then."""
    ended = []

    def checksums(some):
        if len(some) == 1:
            raise MemoryError("broken")
        whole = tuple(zlib.crc32(block.data) for block in some)
        ended.append(len(some))
        return whole

    monkeypatch.setattr(kv_checks, "checksums", checksums)
    arriving = Arriving(checks, blocks([4 * MIB] * 9))
    arriving.arrived(1)
    arriving.arrived(9)
    with pytest.raises(MemoryError):
        arriving.sums()
    assert ended == [8]


@given(st.integers(0, 3000), st.integers(1, 40 * MIB))
def test_pieces_are_all_places_in_order_and_grow_from_small_to_large(num_wanted, block_bytes):
    pieces = cut_in_pieces(num_wanted, block_bytes)
    assert [place for start, end in pieces for place in range(start, end)] == list(range(num_wanted))
    for start, end in pieces:
        come, size = start * block_bytes, (end - start) * block_bytes
        assert size <= max(block_bytes, min(LARGEST_BYTES, FIRST_BYTES + 2 * come))
    if len(pieces) > 6 and block_bytes <= FIRST_BYTES:
        assert (pieces[4][1] - pieces[4][0] + 1) * block_bytes > LARGEST_BYTES
