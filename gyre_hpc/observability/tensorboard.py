"""Scalars as TensorBoard event files, by tensorboard's own writer; needs neither torch nor tensorflow. The only file that imports tensorboard."""

from collections.abc import Mapping
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from gyre_hpc.clock import unix_s
from gyre_hpc.observability.tracker import Tracker


class TensorBoard(Tracker):
    """One event file in `folder` per start."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._writer = EventFileWriter(str(folder), flush_secs=5)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        summary = Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()])
        self._writer.add_event(Event(wall_time=unix_s(), step=step, summary=summary))

    def close(self) -> None:
        self._writer.close()
