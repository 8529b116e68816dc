"""A real run whose cells have two ranks each, which hold one model together, and an evaluation of what it left."""

import json
import os
import subprocess
import sys

import pytest

from gyre_hpc.machines.base import Finished, Received, Start
from gyre_hpc.machines.cell.actions import SleepEngine, SleepTrainer, WakeEngine, WakeTrainer
from gyre_hpc.observability.events import read_events
from gyre_hpc.protocol.to_batch import CellReport
from tests.fakes.fresh_machines import fresh, lives
from tests.fakes.live_run import REPOSITORY
from tests.fakes.whole_run import WholeRun, unended

TINY = (
    "algo.updates=2", "algo.groups_per_batch=3", "algo.group_size=4", "evaluation.tasks=8", "evaluation.before=false",
    "warm_start.executions=20", "warm_start.epochs=1", "cluster.cells=2", "cluster.ranks_per_cell=2", "debug.record_inputs=true",
)  # fmt: skip
MEMORY_STEPS = (SleepEngine, WakeEngine, SleepTrainer, WakeTrainer)
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> WholeRun:
    """Over when the tests see it."""
    with WholeRun(tmp_path_factory.mktemp("two-ranks"), *TINY) as run:
        assert run.wait_end(within_s=300) == 0, run.printed
        assert not run.processes()
    return run


def test_a_run_with_cells_of_two_ranks_finishes_and_every_rank_acknowledges_its_role_changes(run: WholeRun):
    summary = run.summary()
    assert summary["updates"] == 2 and summary["pass_rate_after"] is not None
    assert (summary["tokens"]["lost"], summary["tokens"]["resampled"]) == (0, 0)
    assert not unended(run.events())
    for direction in ("rollout_to_train", "train_to_rollout"):
        assert summary["role_switches"][direction] >= 1


def test_every_rank_acknowledges_every_step_of_a_role_change_that_frees_or_takes_memory(run: WholeRun):
    steps = [step for cell in ("cell-0", "cell-1") for step in acknowledged(run, cell)]
    assert {kind for kind, _ in steps} == {SleepEngine, WakeEngine, SleepTrainer, WakeTrainer}
    assert {ranks for _, ranks in steps} == {(0, 1)}


def acknowledged(run: WholeRun, cell: str) -> list[tuple[type, tuple[int, ...]]]:
    """(step, ranks that answered) of what `cell` did, as its recorded inputs tell."""
    started: dict[str, type] = {}
    answers = []
    for (life,) in [lives(run.folder, cell)]:
        for _, told, effects in life:
            if isinstance(told, Finished) and told.key in started:
                answers.append((started.pop(told.key), tuple(memory.rank for memory in told.result)))
            starts = [effect for effect in effects if isinstance(effect, Start)]
            started |= {start.key: type(start.action) for start in starts if isinstance(start.action, MEMORY_STEPS)}
    return answers


def test_role_changes_build_no_process_and_no_group(run: WholeRun):
    """Two groups in each rank: the cell's WORLD, and that of the engine."""
    looks: dict[str, set[tuple[tuple[int, ...], int]]] = {}
    for life in lives(run.folder, "controller"):
        for _, told, _ in life:
            if isinstance(told, Received) and isinstance(told.message, CellReport) and told.message.pids:
                looks.setdefault(told.message.cell, set()).add((told.message.pids, told.message.groups_built))
    assert set(looks) == {"cell-0", "cell-1"}
    for ((pids, groups_built),) in looks.values():
        assert (len(set(pids)), groups_built) == (2, 4)


def test_recorded_inputs_of_a_real_run_give_the_same_effects_again(run: WholeRun):
    for process in ("controller", "gateway-0", "runner-0", "cell-0", "cell-1", "scripted-0", "supervisor-0"):
        for life in lives(run.folder, process):
            machine = fresh(run.folder, process, life)
            for index, (now, told, effects) in enumerate(life):
                assert machine.handle(now, told) == effects, f"{process}, input {index}: {told}"


def test_any_checkpoint_of_a_run_is_evaluated_by_itself(run: WholeRun):
    root = run.folder.root
    done = subprocess.run(
        [sys.executable, "-c", "from gyre_hpc.cli import main; main()", "eval", str(root), "--checkpoint", "0.1", "--tasks", "5"],
        cwd=root.parent, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    folder = root / "evaluations" / "0.1"
    (evaluation,) = [event for event in read_events(folder / "events") if event.kind == "evaluation"]
    assert (evaluation.fields["total"], evaluation.fields["slot"]) == (5, 1)
    assert not [event for event in read_events(folder / "events") if event.kind in ("applied", "lend")]
    last = done.stdout.splitlines()[-1]
    assert f"pass rate {100 * evaluation.fields['pass_rate']:.1f} % on 5 held-out tasks" in last
    assert last.endswith(f"report: {folder / 'report.html'}") and (folder / "report.html").exists()
    assert json.loads((folder / "summary.json").read_text())["pass_rate_after"] == evaluation.fields["pass_rate"]
