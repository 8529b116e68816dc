"""What every kind of block transport checks and cuts alike: blocks as one stream of bytes, cut into pieces.

Why pieces: a copy of a piece is short, so whoever ends an offer or a fetch waits for one piece at most; and thousands of small
blocks cost little more than one large one. Source and target cut by the sizes alone, so both cut at the same places.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from gyre_hpc.errors import TransferFailed
from gyre_hpc.transport.kv_base import Bytes, Ticket

PIECE_BYTES = 4 << 20
_NO_LIMIT = 1 << 62


def sizes_of(blocks: Sequence[Bytes]) -> tuple[int, ...]:
    """Bytes of each block. Raises TransferFailed for what is no contiguous uint8 [n]."""
    for index, block in enumerate(blocks):
        if block.dtype != np.uint8 or block.ndim != 1 or not block.flags.c_contiguous:
            raise TransferFailed(f"block {index} is no contiguous run of bytes")
    return tuple(block.size for block in blocks)


def check_fetch(ticket: Ticket, kind: str, into: Sequence[Bytes]) -> None:
    """Raises TransferFailed unless `ticket` is of `kind` and `into` has its sizes and can be written."""
    if ticket.kind != kind:
        raise TransferFailed(f"ticket is of kind {ticket.kind!r}, this end has {kind!r}")
    if sizes_of(into) != ticket.sizes:
        raise TransferFailed(f"{len(into)} target blocks do not have the sizes of the {len(ticket.sizes)} offered ones")
    if not all(block.flags.writeable for block in into):
        raise TransferFailed("a target block cannot be written")


def address_of(block: Bytes) -> int:
    """Of its first byte, in this process."""
    return int(block.__array_interface__["data"][0])


def cuts(sizes: Sequence[int], piece_bytes: int, max_parts: int = _NO_LIMIT) -> Iterator[list[tuple[int, int, int]]]:
    """Pieces of `piece_bytes` and at most `max_parts` parts, the last one shorter. A part: (block, first byte in it, bytes). Empty
    blocks vanish."""
    piece: list[tuple[int, int, int]] = []
    room = piece_bytes
    for block, size in enumerate(sizes):
        start = 0
        while start < size:
            count = min(room, size - start)
            piece.append((block, start, count))
            start, room = start + count, room - count
            if not room or len(piece) == max_parts:
                yield piece
                piece, room = [], piece_bytes
    if piece:
        yield piece


def pieces(blocks: Sequence[Bytes], piece_bytes: int = PIECE_BYTES, max_parts: int = _NO_LIMIT) -> Iterator[list[Bytes]]:
    """The blocks' bytes in order, as lists of views."""
    for piece, _ in arriving(blocks, piece_bytes, max_parts):
        yield piece


def arriving(blocks: Sequence[Bytes], piece_bytes: int = PIECE_BYTES, max_parts: int = _NO_LIMIT) -> Iterator[tuple[list[Bytes], int]]:
    """The same, each with the number of leading blocks that are whole when it has come."""
    sizes = [block.size for block in blocks]
    for piece in cuts(sizes, piece_bytes, max_parts):
        block, start, count = piece[-1]
        yield [_part(blocks[block], start, count) for block, start, count in piece], block + (start + count == sizes[block])


def _part(block: Bytes, start: int, count: int) -> Bytes:
    return block if count == block.size else block[start : start + count]


def runs(
    places: Sequence[int], sizes: Sequence[int], piece_bytes: int = PIECE_BYTES, max_parts: int = _NO_LIMIT
) -> Iterator[list[tuple[int, int, int]]]:
    """The same pieces as runs of another process's memory: (offset in the piece, address there, bytes). Neighbours become one."""
    for piece in cuts(sizes, piece_bytes, max_parts):
        found: list[tuple[int, int, int]] = []
        offset = 0
        for block, start, count in piece:
            place = places[block] + start
            if found and found[-1][1] + found[-1][2] == place:
                found[-1] = (found[-1][0], found[-1][1], found[-1][2] + count)
            else:
                found.append((offset, place, count))
            offset += count
        yield found
