"""The snapshot store of one rank: snapshots u and u-1 in host memory, sums handed in, served by a thread of its own.

It lives in the rank process in every role, so that weights stay reachable while the engine or the trainer sleeps. It
imports no torch unless torch tensors are put or pulled.

Invariants (each has a test):
  - a snapshot never changes once put, and shares no memory with what it was put from;
  - a snapshot that somebody holds or is pulling is not dropped; one that nobody holds is, once two newer ones exist;
  - a pull puts a snapshot only after every chunk's checksum was right; a failed pull leaves nothing behind.

Memory of a dropped snapshot is used for the next one, once nobody looks at it any more (host_memory.py).
"""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.to_batch import HandIn
from gyre_hpc.transport import snapshot_client
from gyre_hpc.transport.base import SnapshotStore
from gyre_hpc.transport.checksums import ChunkSums
from gyre_hpc.transport.hand_ins import HandIns
from gyre_hpc.transport.host_memory import HostMemory
from gyre_hpc.transport.packing import Manifest, Packed, pack
from gyre_hpc.transport.snapshot_server import SnapshotServer

_KEPT = 2


class HostSnapshotStore(SnapshotStore):
    """Kind `host`. `chunk_bytes`: size of a chunk of a pull; `deadline_s`: longest a served request may take."""

    def __init__(self, *, chunk_bytes: int = 1 << 20, deadline_s: float = 30.0) -> None:
        if chunk_bytes <= 0:
            raise ValueError(f"transport.chunk_bytes={chunk_bytes!r}: must be positive")
        self._chunk_bytes = chunk_bytes
        self._deadline_s = deadline_s
        self._lock = threading.Lock()
        self._memory = HostMemory()
        self._packed: dict[Version, Packed] = {}
        self._sums: dict[Version, ChunkSums] = {}
        self._holds: Counter[Version] = Counter()
        self._newest_put: Version | None = None
        self._hand_ins = HandIns()
        self._server: SnapshotServer | None = None
        self._run_token = ""

    def serve(self, host: str, run_token: str) -> str:
        if self._server is not None:
            raise ValueError("this snapshot store is served already")
        self._run_token = run_token
        self._server = SnapshotServer(self, self._hand_ins, host, run_token, self._deadline_s)
        return self._server.url

    def put(self, version: Version, tensors: dict[str, Any]) -> None:
        """See base. Putting the same content again does nothing; another content raises ValueError."""
        self._put(version, pack(tensors, self._memory))

    def get(self, version: Version) -> dict[str, Any]:
        with self._lock:
            if version not in self._packed:
                raise KeyError(f"snapshot {version} is not in this store (it has {self._names()})")
            return dict(self._packed[version].tensors)

    def versions(self) -> tuple[Version, ...]:
        with self._lock:
            return tuple(sorted(self._packed))

    @contextmanager
    def hold(self, version: Version) -> Iterator[dict[str, Any]]:
        """Its tensors, kept in the store until the block ends. Raises KeyError."""
        tensors = self.acquire(version).tensors
        try:
            yield dict(tensors)
        finally:
            self.release(version)

    def acquire(self, version: Version) -> Packed:
        """Hold `version` until `release`. Raises KeyError."""
        with self._lock:
            packed = self._packed[version]
            self._holds[version] += 1
            return packed

    def release(self, version: Version) -> None:
        """End one hold of `version`."""
        with self._lock:
            assert self._holds[version] > 0, f"snapshot {version} released more often than held"
            self._holds[version] -= 1
            self._drop_old()

    def manifest(self, version: Version) -> Manifest:
        """What a puller needs first; the caller holds `version`."""
        with self._lock:
            packed = self._packed[version]
        return Manifest(str(version), packed.entries, packed.block.size, self._chunk_bytes)

    def chunks(self, version: Version) -> ChunkSums:
        """Content and checksums; the caller holds `version`."""
        with self._lock:
            return self._sums[version]

    def pull(self, version: Version, sources: tuple[str, ...], deadline_s: float) -> None:
        if version in self.versions():
            return
        self._put(version, snapshot_client.pull(version, sources, self._run_token, deadline_s, self._memory))

    def hand_in(self, url: str, update: int, hand_in: HandIn, data: bytes, deadline_s: float) -> None:
        snapshot_client.hand_in(url, update, hand_in, data, self._run_token, deadline_s)

    def held(self, update: int) -> dict[tuple[str, int], tuple[HandIn, bytes]]:
        return self._hand_ins.held(update)

    def forget(self, before_update: int) -> None:
        self._hand_ins.forget(before_update)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def _put(self, version: Version, packed: Packed) -> None:
        with self._lock:
            known = self._packed.get(version)
            if known is not None:
                if known.entries != packed.entries or (known.block != packed.block).any():
                    raise ValueError(f"snapshot {version} is in the store with other content; a snapshot never changes")
                return
            self._packed[version] = packed
            self._sums[version] = ChunkSums(packed.block, self._chunk_bytes)
            self._newest_put = version
            self._drop_old()

    def _drop_old(self) -> None:
        """Keep the two newest and what is held. The one put last counts as new: somebody just asked for it."""
        kept = {self._newest_put} if self._newest_put is not None else set()
        for version in sorted(self._packed, reverse=True):
            if version in kept:
                continue
            if len(kept) < _KEPT:
                kept.add(version)
            elif not self._holds[version]:
                del self._packed[version]
                del self._sums[version]

    def _names(self) -> str:
        return ", ".join(str(v) for v in sorted(self._packed)) or "none"
