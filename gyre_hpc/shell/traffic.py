"""What one process was told and told others, and what CPU its machine took: counted by kind, noted as event `traffic` when it ends."""

from collections import defaultdict
from typing import Any

from gyre_hpc.machines.base import Input, Received


class Traffic:
    """Costs a microsecond per input; always on."""

    def __init__(self) -> None:
        self._received: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        self._sent: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        self._inputs: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])

    def received(self, message: object, num_bytes: int) -> None:
        _add(self._received, message, num_bytes)

    def sent(self, message: object, num_bytes: int) -> None:
        _add(self._sent, message, num_bytes)

    def handled(self, told: Input, seconds: float) -> None:
        counts = self._inputs[type(told.message if isinstance(told, Received) else told).__name__]
        counts[0] += 1
        counts[1] += seconds

    def fields(self) -> dict[str, Any]:
        """Of the event; seconds are CPU seconds of the loop's thread."""
        inputs = {kind: [count, round(seconds, 6)] for kind, (count, seconds) in self._inputs.items()}
        return {"received": dict(self._received), "sent": dict(self._sent), "inputs": inputs}


def _add(counts: dict[str, list[int]], message: object, num_bytes: int) -> None:
    of_kind = counts[type(message).__name__]
    of_kind[0] += 1
    of_kind[1] += num_bytes
