"""Sums that recalled satellites left at the core, by (update, cell, fence).

Invariants:
  - storing the same hand-in again changes nothing; another content under the same key is refused;
  - what a cell handed in stays when it hands in again under a newer fence: a satellite may be lent twice in one batch. An older
    fence arriving late is refused;
  - an update once forgotten takes nothing any more.
"""

import threading

from gyre_hpc.errors import StaleMessage
from gyre_hpc.protocol.to_batch import HandIn


class HandIns:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[int, dict[tuple[str, int], tuple[HandIn, bytes]]] = {}
        self._floor = -1

    def store(self, update: int, hand_in: HandIn, data: bytes) -> None:
        """Raises StaleMessage (older fence, forgotten update, or another content under the same key)."""
        with self._lock:
            if update < self._floor:
                raise StaleMessage(f"update {update} is over; hand-ins before {self._floor} are forgotten")
            of_update = self._held.setdefault(update, {})
            key = (hand_in.cell, hand_in.fence)
            if key in of_update:
                if of_update[key] != (hand_in, data):
                    raise StaleMessage(f"{hand_in.cell} handed in another sum under fence {hand_in.fence}")
                return
            newest = max((fence for cell, fence in of_update if cell == hand_in.cell), default=hand_in.fence)
            if newest > hand_in.fence:
                raise StaleMessage(f"fence {hand_in.fence} of {hand_in.cell} is older than {newest}")
            of_update[key] = (hand_in, data)

    def held(self, update: int) -> dict[tuple[str, int], tuple[HandIn, bytes]]:
        """Everything held for `update`, by (cell, fence)."""
        with self._lock:
            return dict(self._held.get(update, {}))

    def forget(self, before_update: int) -> None:
        """Free everything of earlier updates, for good."""
        with self._lock:
            self._floor = max(self._floor, before_update)
            self._held = {update: cells for update, cells in self._held.items() if update >= before_update}
