"""Where the controller's notes go."""

from collections.abc import Mapping
from pathlib import Path

from gyre_hpc.control.notes import Notes
from gyre_hpc.observability.events import EventWriter, read_events
from gyre_hpc.observability.tracker import Tracker


class Kept(Tracker):
    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self.rows.append((step, dict(values)))

    def close(self) -> None:
        pass


def test_an_event_is_out_of_the_process_as_soon_as_it_is_noted(tmp_path: Path):
    notes = Notes(EventWriter(tmp_path / "controller-1.jsonl", "controller", 1), Kept())
    for execution in ("train-0-0-0", "train-0-0-1"):
        notes.note("execution_ended", {"execution": execution, "state": "scored"})
    # Nothing is closed: this is what a kill would leave.
    assert [event.fields["execution"] for event in read_events(tmp_path)] == ["train-0-0-0", "train-0-0-1"]


def test_numbers_of_an_update_reach_the_tracker_when_it_is_applied(tmp_path: Path):
    kept = Kept()
    notes = Notes(EventWriter(tmp_path / "controller-1.jsonl", "controller", 1), kept)
    notes.note("group_ready", {"size": 4, "passed": 1, "mean_score": 0.5, "staleness": 1})
    notes.note("group_ready", {"size": 4, "passed": 2, "mean_score": 0.7, "staleness": 0})
    notes.note("micro_batch_accumulated", {"targets": 40, "clipped": 4, "gap": 1e-6})
    assert not kept.rows
    notes.note("applied", {"update": 0, "by_satellites": 1, "micro_batches": 4, "grad_norm": 0.25})
    ((step, values),) = kept.rows
    assert step == 1
    assert (values["train/pass_rate"], values["train/staleness"], values["train/clip_fraction"]) == (0.375, 0.5, 0.1)
    assert (values["elastic/by_satellites"], values["train/grad_norm"]) == (0.25, 0.25)
    notes.close()
