"""Training begins while the batch it belongs to is still being sampled."""

from pathlib import Path

import pytest

from gyre_hpc.observability.events import Event
from tests.fakes.whole_run import WholeRun


def streamed(events: list[Event]) -> list[int]:
    """Updates whose first micro-batch was accumulated before the last execution of their batch ended. All times are the controller's."""
    found = []
    for update in sorted({event.fields["update"] for event in events if event.kind == "applied"}):
        groups = {event.fields["group"] for event in events if event.kind == "group_ready" and event.fields["update"] == update}
        ends = [
            event.time
            for event in events
            if event.kind == "execution_ended" and event.fields.get("purpose") == "train" and group_of(event.fields["execution"]) in groups
        ]
        begins = [event.time for event in events if event.kind == "micro_batch_accumulated" and event.fields["update"] == update]
        if begins and min(begins) < max(ends):
            found.append(update)
    return found


def group_of(execution: str) -> str:
    """`train-0-2-1` or `train-0-2-1-r1` belongs to `train-0-2`."""
    return "-".join(execution.split("-")[:3])


@pytest.mark.timeout(240)
def test_the_first_micro_batch_is_accumulated_before_the_last_execution_of_its_batch_has_ended(tmp_path: Path):
    # Compute is waits here, so that sampling and training take their time on any machine. Satellites come and go several times in a batch.
    overrides = ("+experiment=rehearsal", "cluster.cells=4", "algo.updates=3", "algo.groups_per_batch=6", "algo.group_size=4")
    pace = ("engine.time_scale=4", "trainer.timed_tokens_per_s=1000", "scheduler.lead_factor=0", "scheduler.max_staleness=0")
    with WholeRun(tmp_path, *overrides, *pace, "cluster.runner_capacity=12") as run:
        assert run.wait_end() == 0, run.printed
        assert streamed(run.events()), run.printed
        summary = run.summary()
        assert summary["satellites_joined_mid_batch"] >= 1 and summary["micro_batches_by_satellites_share"] >= 0.2
        assert summary["updates_with_lend_and_recall"] >= 2
        # Nothing was lost, so no sum had to be made twice.
        assert not run.events("commit_failed", "voided")
