"""A run that goes on knows what its saves take: a signal that comes too late for one is refused at the door."""

from pathlib import Path

import pytest

from gyre_hpc.config.deadlines import last_save_s
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import ClusterKind, Config
from gyre_hpc.errors import UserError
from gyre_hpc.launch.slurm.last_save import check_last_save, slowest_save_s
from gyre_hpc.observability.events import EventWriter


def resumed(root: Path, *took_s: float, signal_s: int = 120) -> Config:
    """A run whose attempts saved once each, in so many seconds."""
    for attempt, seconds in enumerate(took_s, start=1):
        events = EventWriter(RunFolder(root).events("cell-0", attempt), "cell-0", attempt)
        events.note("checkpoint", {"version": "0.1", "saved": "0.1", "seconds": seconds})
        events.note("checkpoint", {"version": "0.1", "loaded": "checkpoints/0.1"})
        events.close()
    config = Config(resume=str(root))
    config.cluster.kind, config.cluster.slurm.signal_s = ClusterKind.slurm, signal_s
    return config


def test_the_slowest_save_of_all_attempts_counts_and_torn_lines_do_not(tmp_path: Path) -> None:
    resumed(tmp_path, 3.0, 20.5, 4.0)
    with RunFolder(tmp_path).events("cell-0", 3).open("ab") as file:
        file.write(b'{"kind": "checkpoint", "fields": {"saved": "0.2", "seconds": 99')
    assert slowest_save_s(RunFolder(tmp_path)) == 20.5


def test_a_signal_too_late_for_the_last_save_is_refused_with_the_number_that_would_do(tmp_path: Path) -> None:
    config = resumed(tmp_path, 40.0, signal_s=100)
    with pytest.raises(UserError, match=r"cluster.slurm.signal_s=100.*at least 105") as refused:
        check_last_save(config)
    assert "40.0 s" in str(refused.value)
    config.cluster.slurm.signal_s = 105
    check_last_save(config)
    config.checkpoint.stop_s = 60.0
    with pytest.raises(UserError, match=r"checkpoint.stop_s=60.*at least 80"):
        check_last_save(config)
    config.checkpoint.stop_s = 0.0
    check_last_save(config)


def test_a_run_that_measured_nothing_is_not_refused(tmp_path: Path) -> None:
    check_last_save(resumed(tmp_path, signal_s=1))
    check_last_save(Config())


def test_the_wait_is_what_the_signal_leaves_on_slurm_and_what_was_asked_elsewhere() -> None:
    config = Config()
    assert last_save_s(config) == config.checkpoint.stop_s
    config.cluster.kind, config.cluster.slurm.signal_s = ClusterKind.slurm, 60
    assert last_save_s(config) == 35.0
    config.cluster.slurm.signal_s = 10
    assert last_save_s(config) == 0.0
