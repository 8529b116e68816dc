"""debug.record_inputs: what a machine was told and what it answered, so that a fresh machine can be given the same.

Recordings are pickles: they are written and read inside one user's run folder by tests, never taken from the network.
"""

import pickle
from collections.abc import Iterator
from pathlib import Path

from gyre_hpc.machines.base import Effect, Input


class Recorder:
    """Appends (now, input, effects)."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115  (lives as long as the process)

    def write(self, now: float, told: Input, effects: list[Effect]) -> None:
        # One write: a killed process leaves no half of a record before those of its next incarnation.
        self._file.write(pickle.dumps((now, told, effects)))

    def close(self) -> None:
        self._file.close()


def read_inputs(path: Path) -> Iterator[tuple[float, Input, list[Effect]]]:
    """Everything a Recorder wrote, oldest first; a torn last record is skipped."""
    with open(path, "rb") as file:
        while True:
            try:
                yield pickle.load(file)
            except (EOFError, pickle.UnpicklingError):
                return
