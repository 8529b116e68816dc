"""Memory of snapshots, used again: memory that is new costs a page fault every few KiB, more than the transfer that fills it.

Invariant: memory is given out again only when nothing refers to what it was given out as, views included.
"""

import ctypes
import mmap
import threading
import weakref

import numpy as np

from gyre_hpc.transport.kv_base import Bytes

_POPULATE = 23
"""MADV_POPULATE_WRITE, Linux 5.14 or newer; elsewhere pages come as they are touched."""
# Not mmap.madvise: it keeps the interpreter's lock, for seconds per GiB, in which the process has no heartbeat and hears no signal.
_madvise = ctypes.CDLL(None).madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class HostMemory:
    """Thread-safe. Keeps at most one piece that nobody uses: the next snapshot has the size of the last."""

    def __init__(self) -> None:
        # Reentrant: a garbage collection may give memory back in the middle of anything.
        self._lock = threading.RLock()
        self._spare: mmap.mmap | None = None

    def take(self, size: int) -> Bytes:
        """uint8 [size], content undefined."""
        if not size:
            return np.empty(0, dtype=np.uint8)
        with self._lock:
            spare, self._spare = self._spare, None
        memory = spare if spare is not None and len(spare) == size else _new(size)
        block = np.frombuffer(memory, dtype=np.uint8)
        weakref.finalize(block, self._give_back, memory).atexit = False
        return block

    def _give_back(self, memory: mmap.mmap) -> None:
        with self._lock:
            self._spare = memory


def _new(size: int) -> mmap.mmap:
    memory = mmap.mmap(-1, size)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for advice in (getattr(mmap, "MADV_HUGEPAGE", None), _POPULATE):
        if advice is not None:
            _madvise(address, size, advice)  # advice only: whether it is taken does not matter
    return memory
