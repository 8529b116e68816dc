"""The past that benchmarks.scale makes is one that a run could have: all its readers take it for that."""

import asyncio
import shutil
from pathlib import Path

from benchmarks.scale import soak
from benchmarks.scale.past import Past, Sizes
from benchmarks.scale.watched import Sample
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.control.journal_tail import JournalTail
from gyre_hpc.gateway.earlier import read_earlier
from gyre_hpc.machines.batch.records import Record
from gyre_hpc.protocol.train_groups import TrainGroups
from gyre_hpc.report.calls import read_calls
from gyre_hpc.report.story import read_story
from gyre_hpc.report.summary import summarize
from gyre_hpc.shell.log import read_log
from gyre_hpc.train.checkpoint_folder import newest_whole, read_state
from tests.fakes.batch_bench import machine

OLD = Path(__file__).parents[2] / "fixtures" / "run_of_format_1"
SIZES = Sizes(calls=3, prompt_tokens=50, new_tokens=10, output_tokens=70)


def grown(folder: RunFolder, executions: int) -> Past:
    async def steps() -> Past:
        past = Past(folder, SIZES, groups_per_batch=2, group_size=2)
        await past.grow(executions)
        await past.close()
        return past

    return asyncio.run(steps())


def test_a_past_is_what_a_run_leaves_behind(tmp_path: Path) -> None:
    folder = RunFolder(shutil.copytree(OLD, tmp_path / "run"))
    before = summarize(read_story(folder.root))
    past = grown(folder, 40)
    assert past.num_executions == 40 and past.update == before.updates + (40 - 8) // 4
    assert read_earlier(folder.journal, "gateway-0", ("gateway-0",), 2) == ()
    tail = JournalTail(folder.journal)
    tail.poll()
    assert tail.has_ended("train-9-1-1") and [len(call.output_ids) for call in tail.calls("train-9-1-1")] == [70] * 3
    assert sum(pieces.row.trained for pieces in read_calls(folder.root).values()) >= past.num_calls
    made, _ = machine(*read_log(folder.machine_log("controller", 1), Record)[0], group_size=2)
    assert made.state.update == past.update and not made.state.groups.live
    newest = newest_whole(folder.checkpoints)
    assert newest is not None and len(TrainGroups.read(read_state(newest)["consumed"])) == 20
    after = summarize(read_story(folder.root))
    assert (after.updates, after.executions["scored"]) == (past.update, 40)


def test_a_slope_is_of_the_calm_part_and_per_simulated_hour() -> None:
    plan = soak.Plan(real_s=90, hours=3)
    points = [(float(at), 500.0 - at if at < 30 else 10.0 + at / 30) for at in range(90)]
    found = soak.slope(points, plan)
    assert found is not None and abs(found - 1.0) < 1e-9
    assert soak.slope(points[:35], plan) is None


def test_every_kind_of_process_has_its_own_figures() -> None:
    plan = soak.Plan(real_s=90, hours=3)
    facts = {"pss_mib": 5.0, "peak_mib": 6.0, "cpu_s": 1.0, "fds": 7, "sockets": 3, "threads": 2, "children": 0}
    samples = [
        Sample(pid=pid, kind=kind, name=kind, at=float(at), **facts) for at in range(90) for pid, kind in ((1, "cell"), (2, "runner"))
    ]  # type: ignore[arg-type]
    figures = soak.figures_of(samples, plan)
    assert len({figure.name for figure in figures}) == len(figures) == 2 * 10
    values = {figure.name: figure.value for figure in figures}
    assert (values["soak_cell_fds_start"], values["soak_cell_fds_end"], values["soak_runner_mib"], values["soak_runner_mib_per_h"]) == (
        7,
        7,
        5,
        0,
    )
