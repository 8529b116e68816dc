"""A snapshot store of one process: a dictionary. No server, no copies over the wire."""

from typing import Any

from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.to_batch import HandIn
from gyre_hpc.transport.base import SnapshotStore


class MemoryStore(SnapshotStore):
    """Keeps everything ever put."""

    def __init__(self, snapshots: dict[Version, dict[str, Any]] | None = None) -> None:
        self._snapshots = dict(snapshots or {})

    def serve(self, host: str, run_token: str) -> str:
        raise NotImplementedError("this store has no server")

    def put(self, version: Version, tensors: dict[str, Any]) -> None:
        self._snapshots[version] = {name: tensor.clone() for name, tensor in tensors.items()}

    def get(self, version: Version) -> dict[str, Any]:
        return self._snapshots[version]

    def versions(self) -> tuple[Version, ...]:
        return tuple(sorted(self._snapshots))

    def pull(self, version: Version, sources: tuple[str, ...], deadline_s: float) -> None:
        raise NotImplementedError("this store reaches no other")

    def hand_in(self, url: str, update: int, hand_in: HandIn, data: bytes, deadline_s: float) -> None:
        raise NotImplementedError("this store reaches no other")

    def held(self, update: int) -> dict[tuple[str, int], tuple[HandIn, bytes]]:
        return {}

    def forget(self, before_update: int) -> None:
        return None

    def close(self) -> None:
        return None
