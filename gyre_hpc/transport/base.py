"""Interfaces of what moves between cells."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.to_batch import HandIn


class SnapshotStore(ABC):
    """Snapshots u and u-1 of one rank in host memory, and sums handed in; served over HTTP by a thread of its own in
    every role. Thread-safe. A snapshot is immutable once put."""

    @abstractmethod
    def serve(self, host: str, run_token: str) -> str:
        """Start the HTTP thread on a free port; return the base URL."""

    @abstractmethod
    def put(self, version: Version, tensors: dict[str, Any]) -> None:
        """Keep a copy; drops all but the two newest that nobody holds."""

    @abstractmethod
    def get(self, version: Version) -> dict[str, Any]:
        """Tensors by Hugging Face name, by reference: read-only. Raises KeyError."""

    @abstractmethod
    def versions(self) -> tuple[Version, ...]:
        """Oldest first."""

    @contextmanager
    def hold(self, version: Version) -> Iterator[dict[str, Any]]:
        """`get`, and the store keeps the snapshot until the block ends. Raises KeyError."""
        yield self.get(version)

    @abstractmethod
    def pull(self, version: Version, sources: tuple[str, ...], deadline_s: float) -> None:
        """Fetch from the first source that has it (chunks, checksum each) and put it. Raises TransferFailed."""

    @abstractmethod
    def hand_in(self, url: str, update: int, hand_in: HandIn, data: bytes, deadline_s: float) -> None:
        """Store this cell's sum at the core. Idempotent by (update, cell, fence). Raises TransferFailed."""

    @abstractmethod
    def held(self, update: int) -> dict[tuple[str, int], tuple[HandIn, bytes]]:
        """Sums handed in here for `update`, by (cell, fence)."""

    @abstractmethod
    def forget(self, before_update: int) -> None:
        """Free hand-ins of earlier updates."""

    @abstractmethod
    def close(self) -> None: ...


class Groups(ABC):
    """Process groups between cells, one per generation, outside torch's default ones. Blocking; every call has a
    deadline; call from a thread. Errors are TransferFailed with the reason."""

    @abstractmethod
    def host(self, generation: int, nonce: str) -> str:
        """core: open a store for the generation on a free port; return host:port."""

    @abstractmethod
    def reduce(self, generation: int, address: str, nonce: str, rank: int, world: int, tensor: Any, deadline_s: float) -> Any | None:
        """Join the generation's group, check the nonce, reduce the sum of `tensor` [n] float32 to rank 0 into a new
        scratch tensor (returned there, None elsewhere), leave the group. `tensor` itself is not changed."""

    @abstractmethod
    def abort(self, generation: int) -> None:
        """Break off a reduce of this generation, from another thread."""

    @abstractmethod
    def close(self) -> None: ...
