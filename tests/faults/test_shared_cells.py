"""A run whose cells have two ranks that share a model: one rank stops in the middle of calls, and the run goes on without that cell."""

import os
import signal
from pathlib import Path

import msgspec
import pytest

from gyre_hpc.observability.status import Status
from tests.fakes.whole_run import WholeRun, unended

TINY = (
    "algo.updates=3", "algo.groups_per_batch=8", "algo.group_size=8", "evaluation.before=false", "evaluation.after=false",
    "warm_start.executions=20", "warm_start.epochs=1", "cluster.cells=2", "cluster.ranks_per_cell=2", "transport.deadline_s=8",
)  # fmt: skip


def works_on_calls(run: WholeRun, cell: str) -> bool:
    try:
        status = msgspec.json.decode(run.folder.status.read_bytes(), type=Status)
    except FileNotFoundError:
        return False
    return any(one.name == cell and one.state == "rollout" and one.live for one in status.cells)


def follower_of(run: WholeRun, cell: str) -> int:
    """The process of rank 1."""
    for pid in run.processes():
        folder = Path(f"/proc/{pid}")
        try:
            arguments = (folder / "cmdline").read_bytes().split(b"\0")
            environment = (folder / "environ").read_bytes().split(b"\0")
        except OSError:  # gone
            continue
        if cell.encode() in arguments and b"RANK=1" in environment:
            return pid
    raise AssertionError(f"no second rank of {cell}")


@pytest.mark.rare
@pytest.mark.timeout(400)
def test_a_rank_that_stops_in_the_middle_of_calls_costs_its_cell_and_no_token(tmp_path: Path):
    with WholeRun(tmp_path, *TINY) as run:
        run.wait_until(lambda: works_on_calls(run, "cell-1"), "calls on cell-1", within_s=180)
        os.kill(follower_of(run, "cell-1"), signal.SIGSTOP)
        assert run.wait_end(within_s=250) == 0, run.printed
        summary = run.summary()
        assert summary["updates"] == 3
        assert (summary["tokens"]["lost"], summary["tokens"]["resampled"]) == (0, 0)
        assert not unended(run.events()) and not run.events("call_failed")
        lost = [event.fields for event in run.events("cell_lost")]
        assert [one["cell"] for one in lost] == ["cell-1"]
        assert "rank 1" in lost[0]["reason"]
        rerouted = [event.fields for event in run.events("call_rerouted")]
        assert any(one["cell"] == "cell-1" for one in rerouted), "its calls went on elsewhere"
        assert not run.processes()
