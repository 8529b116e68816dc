"""Blocks of one offer at their source, for kinds whose source reads them itself."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from gyre_hpc.errors import TransferFailed
from gyre_hpc.transport.kv_base import Bytes


class Offered:
    """Its lock is held while they are read, for one piece at most: after `end` nobody reads."""

    def __init__(self, blocks: tuple[Bytes, ...]) -> None:
        self.blocks = blocks
        self._lock = threading.Lock()
        self._is_over = False

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Raises TransferFailed when the offer is over."""
        with self._lock:
            if self._is_over:
                raise TransferFailed("the offer was withdrawn")
            yield

    def end(self) -> None:
        with self._lock:
            self._is_over = True
