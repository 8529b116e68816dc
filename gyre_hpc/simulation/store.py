"""Snapshot store of a cell: the two newest versions, and sums handed in. As transport/snapshot_store.py, without bytes."""

from typing import TYPE_CHECKING

from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.to_batch import HandIn
from gyre_hpc.simulation.process import ActionFailed
from gyre_hpc.simulation.weights import Sum, Weights

if TYPE_CHECKING:
    from gyre_hpc.simulation.watch import Watch

_KEPT = 2


class Store:
    def __init__(self, watch: "Watch", name: str) -> None:
        self._watch, self._name = watch, name
        self._floor = -1
        self.snapshots: dict[Version, Weights] = {}
        self.is_rotting = False
        self.held: dict[tuple[int, str, int], tuple[HandIn, Sum]] = {}

    def put(self, version: Version, weights: Weights) -> None:
        """Keeps it and the newest other one."""
        self._watch.made(self._name, version, weights)
        self.snapshots[version] = weights
        others = sorted((other for other in self.snapshots if other != version), reverse=True)
        for old in others[_KEPT - 1 :]:
            del self.snapshots[old]

    def get(self, version: Version) -> Weights:
        if version not in self.snapshots:
            raise ActionFailed("KeyError", f"snapshot {version} is not here")
        return self.snapshots[version]

    def take_hand_in(self, update: int, hand_in: HandIn, total: Sum) -> None:
        """Idempotent by (update, cell, fence)."""
        if update < self._floor:
            raise ActionFailed("StaleMessage", "that update is over")
        self.held.setdefault((update, hand_in.cell, hand_in.fence), (hand_in, list(total)))

    def rot(self) -> None:
        """The newest sum that was handed in loses its last micro-batch."""
        self.is_rotting = False
        if not self.held:
            return
        key = next(reversed(self.held))
        hand_in, total = self.held[key]
        lost = hand_in.ids[-1:]
        shorter = HandIn(cell=hand_in.cell, fence=hand_in.fence, ids=hand_in.ids[:-1])
        self.held[key] = (shorter, [gradient for gradient in total if gradient.content.id not in lost])

    def forget(self, before_update: int) -> None:
        self._floor = max(self._floor, before_update)
        self.held = {key: value for key, value in self.held.items() if key[0] >= before_update}
