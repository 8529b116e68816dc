"""CRC-32 of blocks, in threads beside those that send and receive: a checksum takes longer than a fast network does.

zlib lets other threads run meanwhile. Nobody looks at blocks once `Arriving.sums` or `Checks.of` has returned.
"""

import os
import zlib
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import pairwise

from gyre_hpc.transport.kv_base import Bytes

_THREADS = max(1, min(4, (os.cpu_count() or 1) - 1))
_ERRAND_BYTES = 1 << 20
"""At least, of one errand of a thread: what an errand costs must not count beside its blocks."""
Sums = tuple[int, ...]


class Checks:
    """Its threads start when something is to be checked, and stay. Thread-safe."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, "kv-check")

    def begin(self, blocks: Sequence[Bytes]) -> "Future[Sums]":
        """Checksums of all of them, by one thread."""
        return self._pool.submit(checksums, blocks)

    def of(self, blocks: Sequence[Bytes]) -> Sums:
        """By the caller's thread and all but one of ours, so that one core stays for whoever sends meanwhile; blocks until they are done."""
        own, *others = _shares(blocks, _THREADS)
        begun = [self.begin(share) for share in others]
        return checksums(own) + _joined(begun)

    def close(self) -> None:
        """What was begun is done; nothing can be begun any more."""
        self._pool.shutdown()


class Arriving:
    """Blocks of one fetch, checked while those behind them still come."""

    def __init__(self, checks: Checks, blocks: Sequence[Bytes]) -> None:
        self._checks, self._blocks = checks, blocks
        self._num_begun = 0
        self._begun: list[Future[Sums]] = []

    def arrived(self, count: int) -> None:
        """The first `count` are whole."""
        if count > self._num_begun:
            self._begun.append(self._checks.begin(self._blocks[self._num_begun : count]))
            self._num_begun = count

    def sums(self) -> Sums:
        """Of all that is whole. Waits for it."""
        return _joined(self._begun)


def checksums(blocks: Sequence[Bytes]) -> Sums:
    """CRC-32 of each block, in the caller's thread."""
    return tuple(zlib.crc32(block.data) for block in blocks)


def _joined(parts: "Sequence[Future[Sums]]") -> Sums:
    """Every part has ended, also when one raises."""
    wait(parts)
    return tuple(one for part in parts for one in part.result())


def _shares(blocks: Sequence[Bytes], most: int) -> list[Sequence[Bytes]]:
    """Up to `most`, nearly equal, in order; at least one, which may be empty."""
    num_shares = max(1, min(most, len(blocks), sum(block.size for block in blocks) // _ERRAND_BYTES))
    cuts = [len(blocks) * share // num_shares for share in range(num_shares + 1)]
    return [blocks[start:end] for start, end in pairwise(cuts)]
