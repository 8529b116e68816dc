"""Trackers: where numbers per update go besides the event files. A tracker that cannot start stops the run; later failures never do."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path

from gyre_hpc.config.schema import TrackerConfig

log = logging.getLogger(__name__)


class Tracker(ABC):
    """One destination."""

    @abstractmethod
    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Numbers of update `step`, by `group/name`."""

    @abstractmethod
    def close(self) -> None:
        """Write what is left."""


class FanOut(Tracker):
    """Several trackers as one; a failing one is said once and left out from then on."""

    def __init__(self, trackers: list[Tracker]) -> None:
        self._trackers = list(trackers)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self._each(lambda tracker: tracker.scalars(step, values))

    def close(self) -> None:
        self._each(lambda tracker: tracker.close())

    def _each(self, call: Callable[[Tracker], None]) -> None:
        for tracker in list(self._trackers):
            try:
                call(tracker)
            except Exception as error:  # noqa: BLE001 - process edge: monitoring must not take down training
                self._trackers.remove(tracker)
                log.warning("tracker %s failed and is left out: %s", type(tracker).__name__, error)


def make_tracker(config: TrackerConfig, folder: Path) -> Tracker:
    """The configured trackers, writing below `folder`. Raises what the tracker raises when it cannot start."""
    trackers: list[Tracker] = []
    if config.tensorboard:
        from gyre_hpc.observability.tensorboard import TensorBoard  # 0.3 s of imports, for the controller alone

        trackers.append(TensorBoard(folder))
    return FanOut(trackers)
