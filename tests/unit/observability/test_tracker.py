"""Trackers get numbers; a failing one is left out and nothing else happens."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from gyre_hpc.config.schema import TrackerConfig
from gyre_hpc.observability.tracker import FanOut, Tracker, make_tracker


class Remembers(Tracker):
    def __init__(self) -> None:
        self.seen: list[tuple[int, dict[str, float]]] = []

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self.seen.append((step, dict(values)))

    def close(self) -> None:
        self.seen.append((-1, {}))


class Fails(Remembers):
    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        super().scalars(step, values)
        raise OSError("disk full")


def test_a_failing_tracker_is_said_once_and_left_out(caplog: pytest.LogCaptureFixture):
    good, bad = Remembers(), Fails()
    both = FanOut([bad, good])
    for step in range(3):
        both.scalars(step, {"a": 1.0})
    both.close()
    assert [step for step, _ in good.seen] == [0, 1, 2, -1]
    assert [step for step, _ in bad.seen] == [0]
    assert sum("disk full" in record.message for record in caplog.records) == 1


def test_tensorboard_reads_what_was_written(tmp_path: Path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tracker = make_tracker(TrackerConfig(), tmp_path / "tensorboard")
    for step in (1, 2):
        tracker.scalars(step, {"train/loss": step / 2})
    tracker.close()
    read = EventAccumulator(str(tmp_path / "tensorboard"))
    read.Reload()
    assert [(event.step, event.value) for event in read.Scalars("train/loss")] == [(1, 0.5), (2, 1.0)]


def test_without_trackers_nothing_is_written(tmp_path: Path):
    tracker = make_tracker(TrackerConfig(tensorboard=False), tmp_path / "tensorboard")
    tracker.scalars(1, {"a": 1.0})
    tracker.close()
    assert not (tmp_path / "tensorboard").exists()


def test_a_tracker_that_cannot_start_stops_the_run(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        make_tracker(TrackerConfig(), tmp_path / "file" / "tensorboard")


def test_tensorboard_needs_no_torch(tmp_path: Path):
    program = (
        "import sys\nfrom pathlib import Path\nfrom gyre_hpc.config.schema import TrackerConfig\n"
        "from gyre_hpc.observability.tracker import make_tracker\n"
        "make_tracker(TrackerConfig(), Path(sys.argv[1])).close()\nprint('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "t")], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"
