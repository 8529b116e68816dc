"""`gyre compare SWEEP`: a line per run with what it alone was told."""

import dataclasses
import json
from pathlib import Path

import pytest

from gyre_hpc.cli.commands import run
from gyre_hpc.config.schema import Config, SchedulerConfig, SchedulerMode
from gyre_hpc.config.stored import store_config
from gyre_hpc.errors import NoRun
from gyre_hpc.report.figures import figures, runs_in, table
from gyre_hpc.report.story import read_story
from tests.unit.report.made_up_run import make_run


@pytest.fixture
def swept(tmp_path: Path) -> Path:
    """Three runs; the last one, of number 10, has only just been asked for."""
    for number, mode, updates in ((0, SchedulerMode.elastic, 3), (2, SchedulerMode.colocate, 2)):
        folder = make_run(tmp_path / f"{number}_scheduler-{mode.name}", updates=updates)
        store_config(Config(seed=7, scheduler=SchedulerConfig(mode=mode)), folder.config)
    store_config(dataclasses.replace(Config(), seed=7), tmp_path / "10_scheduler-elastic" / "config.yaml")
    (tmp_path / "10_scheduler-elastic" / "state").mkdir()
    (tmp_path / "multirun.yaml").touch()
    return tmp_path


def test_a_sweep_stands_for_its_runs_by_number(swept: Path):
    assert [Path(run).name for run in runs_in(str(swept))] == ["0_scheduler-elastic", "2_scheduler-colocate", "10_scheduler-elastic"]
    assert runs_in(str(swept / "0_scheduler-elastic")) == [str(swept / "0_scheduler-elastic")]
    (swept / "empty").mkdir()
    with pytest.raises(NoRun, match="name a run folder"):
        runs_in(str(swept / "empty"))


def test_columns_are_the_keys_in_which_the_runs_differ(swept: Path):
    found = figures([(Path(run).name, read_story(run)) for run in runs_in(str(swept))])
    assert [run.told for run in found] == [{"scheduler.mode": "elastic"}, {"scheduler.mode": "colocate"}, {"scheduler.mode": "elastic"}]
    first, _, last = found
    assert first.tokens_per_s == first.summary.tokens["sampled"] / first.summary.wall_s
    assert first.idle_share is not None and 0 < first.idle_share < 1 and (last.idle_share, last.tokens_per_s) == (None, None)
    lines = table(found).splitlines()
    assert lines[0].split()[:3] == ["run", "scheduler.mode", "end"] and "idle" in lines[0]
    assert lines[1].split()[:5] == ["0_scheduler-elastic", "elastic", "done", f"{first.summary.wall_s:.0f}", "3"]
    assert "20.0 % -> 60.0 %" in lines[1] and "not finished" in lines[3]


def test_gyre_compare_takes_a_sweep_or_runs(swept: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["compare", str(swept)]) == 0
    short = capsys.readouterr().out
    assert len(short.splitlines()) == 4
    assert run(["compare", str(swept), "--full"]) == 0
    assert capsys.readouterr().out.startswith(short + "\n")
    assert run(["compare", str(swept / "0_scheduler-elastic"), str(swept / "2_scheduler-colocate")]) == 0
    assert "pass_rate_after" not in capsys.readouterr().out, "single runs too: a line each"
    assert run(["compare", "--json", str(swept)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["2_scheduler-colocate"]["told"] == {"scheduler.mode": "colocate"} and told["2_scheduler-colocate"]["updates"] == 2
    assert run(["compare", str(swept / "0_scheduler-elastic")]) == 2
