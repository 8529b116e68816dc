"""A running run is joined by nodes that nobody planned: they serve and train, and may vanish at any instant."""

from pathlib import Path

import msgspec
import pytest

from gyre_hpc.machines.supervision import NODE_LOST, SUPERSEDED
from gyre_hpc.protocol.node_map import CellPlace, RunStart
from gyre_hpc.shell.node_map import read_start
from gyre_hpc.supervisor.mirror import write_private
from tests.fakes.live_run import wait_dead, wait_for
from tests.fakes.nodes_run import NodesRun, nodes_of
from tests.fakes.whole_run import unended

CORE = CellPlace("cell-0", ("supervisor-0",), (0,))
TOGETHER = (
    "+experiment=rehearsal", "scheduler=colocate", "algo.groups_per_batch=3", "algo.group_size=4", "engine.time_scale=4",
    "cluster.slurm.node_silence_s=20",
)  # fmt: skip
"""All cells generate, then all train: whoever joined does both within one update."""
SLOW = "trainer.timed_tokens_per_s=400"
"""Seconds of training for each cell and update, so that a kill comes in the middle."""
EMBEDDED = (
    "+experiment=quickstart_short", "scheduler=colocate", "algo.groups_per_batch=3", "algo.group_size=4", "warm_start.executions=0",
    "warm_start.epochs=0", "evaluation.before=false", "evaluation.after=false", "transport.deadline_s=15",
)  # fmt: skip
pytestmark = pytest.mark.timeout(400)


def joiner(job: int, node: int = 0) -> str:
    return f"supervisor-j{job}n{node}"


def alone(root: Path, updates: int, *overrides: str) -> NodesRun:
    """A run whose own allocation has the core alone."""
    return NodesRun(root, nodes_of(1, CORE), *(overrides or (*TOGETHER, SLOW)), f"algo.updates={updates}")


def wait_accumulated(run: NodesRun, cell: str, within_s: float = 120.0) -> int:
    """`cell` holds a micro-batch of an update that is not made yet; return which update."""
    return int(run.wait_event("micro_batch_accumulated", lambda event: event.fields["cell"] == cell, within_s).fields["update"])


def expect_whole(run: NodesRun, updates: int) -> None:
    """Every update made, each execution in one of them, no token lost or sampled twice."""
    summary = run.summary()
    assert (summary["updates"], summary["exit_code"], summary["attempts"]) == (updates, 0, 1)
    assert (summary["tokens"]["lost"], summary["tokens"]["resampled"]) == (0, 0)
    assert not run.events("token_fault") and not unended(run.events())
    assert len(run.consumed()) == len(set(run.consumed())) == updates * 3 * 4
    wait_for(lambda: not run.processes(), "the end of every process of the run")


def trained_for_nothing(run: NodesRun, update: int) -> tuple[set[str], set[str]]:
    """Micro-batches of an update that were accumulated more than once, and those that a cell held when it was lost."""
    done = [
        (event.fields["id"], event.fields["cell"]) for event in run.events("micro_batch_accumulated") if event.fields["update"] == update
    ]
    again = {id for id, _ in done if sum(id == other for other, _ in done) > 1}
    lost = {event.fields["cell"] for event in run.events("cell_lost")}
    return again, {id for id, cell in done if cell in lost}


def die_in_mid_batch(run: NodesRun) -> int:
    """Nodes join, one after the other, until one died holding micro-batches of an update that was not made; return that update."""
    for number in range(1, 5):
        cell = f"cell-{number}"
        run.join(joiner(number), cells=1, index=number)
        update = wait_accumulated(run, cell, 200.0)
        below = run.below(joiner(number))
        run.nodes[joiner(number)].kill()
        wait_dead(below)
        lost = run.wait_event("cell_lost", lambda event, cell=cell: event.fields["cell"] == cell)
        if lost.fields["voided"] and not any(
            event.fields["update"] >= update and event.time < lost.time for event in run.events("applied")
        ):
            return update
    raise AssertionError("every one of them came too late")


@pytest.mark.rare
@pytest.mark.parametrize("kind", ["timed", "embedded"])
def test_what_a_joined_node_held_when_it_died_is_done_again_by_others_and_nothing_twice(tmp_path: Path, kind: str):
    updates, own = (3, (*TOGETHER, "trainer.timed_tokens_per_s=150")) if kind == "timed" else (8, EMBEDDED)
    with alone(tmp_path, updates, *own) as run:
        update = die_in_mid_batch(run)
        assert run.wait_codes(300.0)["supervisor-0"] == 0
        expect_whole(run, updates)
        again, of_the_lost = trained_for_nothing(run, update)
        assert of_the_lost and again == of_the_lost, "what it held, and nothing else"
        assert any("cell-1" in event.fields["cells"] for event in run.events("call_ended"))


def test_two_nodes_that_join_at_once_serve_train_and_end_with_the_run(tmp_path: Path):
    with alone(tmp_path, 5, *TOGETHER, "trainer.timed_tokens_per_s=1000") as run:
        run.wait_event("applied")
        for node in (0, 1):
            run.join(joiner(1, node), cells=1, index=node + 1)
        for cell in ("cell-1", "cell-2"):
            wait_accumulated(run, cell)
        assert run.wait_codes(200.0) == {"supervisor-0": 0, joiner(1, 0): 0, joiner(1, 1): 0}
        expect_whole(run, 5)
        served = {cell for event in run.events("call_ended") for cell in event.fields["cells"]}
        assert served == {"cell-0", "cell-1", "cell-2"}
        assert run.summary()["micro_batches_by_satellites_share"] > 0
        assert not run.events("cell_lost", "node_left")
        assert not list(run.scratch.iterdir()), "the scratch folders of all nodes are gone"


@pytest.mark.rare
def test_a_node_that_is_told_to_leave_ends_its_cells_and_the_run_goes_on(tmp_path: Path):
    with alone(tmp_path, 3) as run:
        run.wait_event("applied")
        run.join(joiner(1), cells=2, index=1)
        wait_accumulated(run, "cell-2")
        below = run.below(joiner(1))
        run.nodes[joiner(1)].terminate()
        assert run.nodes[joiner(1)].wait(40) == 0
        wait_dead(below)
        assert run.wait_codes(200.0)["supervisor-0"] == 0
        expect_whole(run, 3)
        assert [event.fields["node"] for event in run.events("node_left")] == [joiner(1)]


@pytest.mark.rare
def test_nodes_that_come_and_go_leave_no_list_that_grows(tmp_path: Path):
    with alone(tmp_path, 40, *TOGETHER) as run:
        run.wait_event("applied")
        for number in range(1, 11):
            run.join(joiner(number), cells=1, index=number)
            cell = f"cell-{number}"
            run.wait_event("process_registered", lambda event, cell=cell: event.fields["process"] == cell)
            run.nodes[joiner(number)].terminate()
            assert run.nodes[joiner(number)].wait(60) == 0
        gone = [joiner(1), joiner(2), "cell-1", "cell-2"]
        wait_for(lambda: not {entry.process for entry in run.entries()} & set(gone), "the first ones are forgotten")
        assert {joiner(10), "cell-10"} <= {entry.process for entry in run.entries()}
        wait_for(lambda: b'"cell-1"' not in run.folder.status.read_bytes(), "status.json without them")
        run.process.terminate()
        run.wait_codes()
        assert not run.events("token_fault")


@pytest.mark.rare
def test_who_may_not_join_ends_by_itself_and_says_why(tmp_path: Path):
    with alone(tmp_path / "one", 40, *TOGETHER) as run, alone(tmp_path / "other", 1, *TOGETHER) as other:
        run.wait_event("applied")
        start = read_start(run.folder.start(1))
        assert start is not None
        elsewhere = other.folder.root / "elsewhere.json"
        write_private(elsewhere, msgspec.json.encode(start))
        other.join(joiner(1), 1, 1, start=elsewhere)
        assert other.nodes[joiner(1)].wait(60) == NODE_LOST, "of another run: its token is none here"
        assert "run token missing or wrong" in other.folder.log(joiner(1)).read_text()
        older = run.folder.root / "older.json"
        write_private(older, msgspec.json.encode(RunStart(attempt=0, url=start.url)))
        run.join(joiner(2), 1, 1, start=older)
        assert run.nodes[joiner(2)].wait(60) == SUPERSEDED
        assert "attempt 1 of this run lives; 0 is over" in run.folder.log(joiner(2)).read_text()
        assert not run.events("node_joined") and run.process.poll() is None, "the run knows nothing of either"
        wait_for(lambda: other.process.poll() is not None, "the end of the other run", 60.0)
        other.join(joiner(3), 1, 1, start=None)
        assert other.nodes[joiner(3)].wait(60) == 0
        assert "is over: all updates made" in other.folder.log(joiner(3)).read_text()
