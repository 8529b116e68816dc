"""What every kind of block transport checks and copies alike: blocks as one stream of bytes, cut into pieces.

Why pieces: a copy of a piece is short, so whoever ends an offer or a fetch waits for one piece at most; and thousands of small
blocks cost as little as one large one.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from gyre_hpc.errors import TransferFailed
from gyre_hpc.transport.kv_base import Bytes, Ticket

PIECE_BYTES = 4 << 20


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


def pieces(blocks: Sequence[Bytes], piece_bytes: int = PIECE_BYTES) -> Iterator[list[Bytes]]:
    """The blocks' bytes in order, as lists of views of `piece_bytes` in all; the last one is shorter. Empty blocks vanish."""
    piece: list[Bytes] = []
    room = piece_bytes
    for block in blocks:
        start = 0
        while start < block.size:
            part = block[start : start + room]
            piece.append(part)
            start, room = start + part.size, room - part.size
            if not room:
                yield piece
                piece, room = [], piece_bytes
    if piece:
        yield piece
