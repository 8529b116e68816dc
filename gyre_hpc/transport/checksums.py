"""CRC-32 of the chunks of a block. Guards against damage on the way; against strangers there is the run token."""

import zlib

import numpy as np

BYTES = 4
"""On the wire, little-endian, after each chunk."""


def checksum(data: memoryview) -> bytes:
    """As it goes over the wire."""
    return zlib.crc32(data).to_bytes(BYTES, "little")


class ChunkSums:
    """Sums of one block's chunks, computed when first asked for, then kept: a version that nobody pulls costs nothing.

    Thread-safe: two who ask at once compute the same.
    """

    def __init__(self, block: np.ndarray, chunk_bytes: int) -> None:
        self._data, self._chunk_bytes = block.data, chunk_bytes
        self._sums: list[bytes | None] = [None] * -(-block.size // chunk_bytes)

    def __len__(self) -> int:
        return len(self._sums)

    def chunk(self, index: int) -> memoryview:
        """Raises IndexError."""
        if not 0 <= index < len(self._sums):
            raise IndexError(f"there is no chunk {index} of {len(self._sums)}")
        return self._data[index * self._chunk_bytes : (index + 1) * self._chunk_bytes]

    def of(self, index: int) -> bytes:
        """Raises IndexError."""
        known = self._sums[index]
        if known is None:
            known = self._sums[index] = checksum(self.chunk(index))
        return known
