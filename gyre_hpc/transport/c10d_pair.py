"""A process group of two between a source and a reader, over a store of the source; kept for as long as their connection stands."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from gyre_hpc.transport.c10d_pieces import Deadline, c10d, new_group
from gyre_hpc.transport.c10d_staging import SLOTS, Staging
from gyre_hpc.transport.kv_base import Arrived, Bytes
from gyre_hpc.transport.kv_blocks import arriving, pieces

Guard = Callable[[], AbstractContextManager[None]]
"""Held while blocks are read or written; raises TransferFailed when they must not be any more."""


class Pair:
    """One end. Blocks until the other end has come, or raises what torch raises. `abort` may come from another thread."""

    def __init__(self, store: Any, line: str, backend: str, host: str, rank: int, deadline: Deadline) -> None:
        self._peer = 1 - rank
        self._lock = threading.Lock()
        self._is_aborted = False
        self._staging = Staging(backend)
        self._group = new_group(c10d.PrefixStore(line, store), backend, host, rank, 2, deadline.left())

    def send(self, blocks: Sequence[Bytes], deadline: Deadline, guard: Guard) -> None:
        """Blocks are read under the guard alone. Raises TransferFailed or what torch raises."""
        works = deque[Any]()
        for slot, piece in enumerate(pieces(blocks)):
            if len(works) == SLOTS:
                works.popleft().wait(deadline.left())
            with guard():
                count = self._staging.fill(slot, piece)
            works.append(self._group.send([self._staging.tensor(slot, count)], self._peer, slot))
        for work in works:
            work.wait(deadline.left())

    def receive(self, blocks: Sequence[Bytes], deadline: Deadline, guard: Guard, arrived: Arrived) -> None:
        """Blocks are written, and `arrived` is told, under the guard alone. Raises TransferFailed or what torch raises."""
        cut = list(arriving(blocks))
        counts = [sum(part.size for part in piece) for piece, _ in cut]

        def post(slot: int) -> Any:
            return self._group.recv([self._staging.tensor(slot, counts[slot])], self._peer, slot)

        works = deque(post(slot) for slot in range(min(SLOTS, len(cut))))
        for slot, (piece, num_whole) in enumerate(cut):
            works.popleft().wait(deadline.left())
            self._staging.arrived(slot, counts[slot])
            with guard():
                self._staging.drain(slot, piece)
                arrived(num_whole)
            if slot + SLOTS < len(cut):
                works.append(post(slot + SLOTS))

    def close(self) -> None:
        """Whoever waits in it gets an error, on both ends."""
        with self._lock:
            if self._is_aborted:
                return
            self._is_aborted = True
        self._group.abort()
