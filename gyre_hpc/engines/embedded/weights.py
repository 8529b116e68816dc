"""The weights a core serves, and those that are ready to take their place."""

from collections.abc import Callable

from gyre_hpc.engines.embedded.forward import Forward
from gyre_hpc.models.incremental import Prepared
from gyre_hpc.models.parameters import Parameters
from gyre_hpc.protocol.identity import Version


class Weights:
    """snapshot: the whole weights of a version; raises KeyError."""

    def __init__(self, forward: Forward, snapshot: Callable[[Version], Parameters]) -> None:
        self._forward, self._snapshot = forward, snapshot
        self.version = Version()
        self.prepared: Prepared | None = None
        """None while asleep."""
        self._staged: tuple[Version, Prepared] | None = None

    def num_bytes(self) -> int:
        return self.prepared.num_bytes() if self.prepared else 0

    def stage(self, version: Version) -> None:
        """Prepare a version beside the one in use, unless it is that. Raises KeyError, and nothing is changed."""
        if self.prepared is None or version != self.version:
            self._staged = version, self._forward.prepare(self._snapshot(version))

    def take(self, version: Version) -> None:
        """Go over to the staged version."""
        assert self._staged is not None and self._staged[0] == version, f"version {version} is not staged"
        (self.version, self.prepared), self._staged = self._staged, None

    def drop(self) -> None:
        self.prepared = self._staged = None
