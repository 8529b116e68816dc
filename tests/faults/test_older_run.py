"""A run that the gyre_hpc before the present run-folder format left behind: it is read, reported and gone on with.

tests/fixtures/run_of_format_1: two updates of a rehearsal, made by commit b99f97f, without its logs, token and earlier checkpoint.
"""

import shutil
from pathlib import Path

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.stored import FORMAT, read_config
from gyre_hpc.observability.attempt_record import read_records
from gyre_hpc.report.html import write_report
from gyre_hpc.report.story import read_story
from gyre_hpc.report.summary import summarize
from gyre_hpc.train.checkpoint_folder import newest_whole, read_state
from tests.fakes.whole_run import WholeRun, first_names

OLD = Path(__file__).parents[1] / "fixtures" / "run_of_format_1"


def test_its_report_opens_and_its_numbers_are_those_it_had(tmp_path: Path):
    folder = RunFolder(shutil.copytree(OLD, tmp_path / "run"))
    story = read_story(folder.root)
    write_report(story)
    assert "2 updates" in folder.report.read_text()
    summary = summarize(story)
    assert (summary.updates, summary.executions["scored"], summary.tokens["sampled"]) == (2, 8, 483)
    assert (summary.attempts, summary.versions, summary.checkpoint) == (1, {}, "checkpoints/0.2")


def test_it_goes_on_where_it_stood_and_is_of_the_present_format_then(tmp_path: Path):
    folder = RunFolder(shutil.copytree(OLD, tmp_path / "run"))
    consumed_before = first_names(read_consumed(folder))
    with WholeRun(tmp_path, f"resume={folder.root}", "algo.updates=3") as run:
        assert run.wait_end() == 0, run.printed
        assert run.summary()["updates"] == 3 and run.summary()["attempts"] == 2
        assert "algo.updates 2 -> 3 (attempt 2)" in run.summary()["told_anew"]
        consumed = run.consumed()
        assert consumed_before < set(consumed) and len(consumed) == len(set(consumed)), "nothing is trained twice"
    assert read_config(folder.config)[1] == FORMAT
    assert [record.attempt for record in read_records(folder)] == [2]


def read_consumed(folder: RunFolder) -> list[str]:
    newest = newest_whole(folder.checkpoints)
    assert newest is not None
    return list(read_state(newest)["consumed"])
