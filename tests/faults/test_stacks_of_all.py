"""A collective between cells that hangs tells why: all of its members leave their stacks, not only the one that is ended for it."""

import re
from pathlib import Path

import pytest

from tests.fakes import striking
from tests.fakes.whole_run import WholeRun

CELLS = ("cell-0", "cell-1", "cell-2")
RUN = (
    "algo.groups_per_batch=6", "algo.group_size=4", "algo.updates=1", "cluster.cells=3", "scheduler=colocate", "trainer.micro_batch_tokens=48",
    "evaluation.before=false", "evaluation.after=false", "evaluation.tasks=0", "warm_start.executions=30", "warm_start.epochs=2",
    "transport.deadline_s=8", "debug.record_inputs=true",
)  # fmt: skip
"""The commit is late before the stopped cell is missed for its silence."""
STRIKE = "satellite:stands_still_in_reduce"
pytestmark = pytest.mark.timeout(300)


def test_a_member_that_stands_still_has_the_others_write_their_stacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in striking.environment(tmp_path, STRIKE).items():
        monkeypatch.setenv(name, value)
    with WholeRun(tmp_path, *RUN) as run:
        run.wait_event("stacks_asked", lambda event: "is not reduced" in event.fields["reason"], within_s=200)
        assert run.wait_end(within_s=200) == 0, run.printed
        assert striking.struck(tmp_path) == [STRIKE]
        asked = {
            event.fields["process"]: event.fields for event in run.events("stacks_asked") if "is not reduced" in event.fields["reason"]
        }
        assert set(asked) == set(CELLS)
        assert all(re.search(r"update 0 is not reduced after \d+ s; cell-0 waits for reduce", one["reason"]) for one in asked.values())
        (lost,) = {event.fields["cell"] for event in run.events("cell_lost")}
        for name in set(CELLS) - {lost}:
            assert " in reduce\n" in run.folder.stacks(name, 1, 1, rank=0).read_text(), "what it does, and where"
            assert "torch/distributed/elastic" in run.folder.stacks(name, 1, 1, agent=0).read_text()
