"""A folder too high or too deep where a run is expected: every command says where runs are, and ends with exit code 2."""

import os
from pathlib import Path

import pytest

from gyre_hpc.cli.commands import run
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.config.stored import store_config
from gyre_hpc.report.watch.nearby import SHOWN, nearby

COMMANDS = [
    ["status", "{}"],
    ["attach", "{}"],
    ["logs", "{}"],
    ["stop", "{}"],
    ["debug", "{}", "--process", "controller"],
    ["report", "{}"],
    ["calls", "{}"],
    ["eval", "{}"],
    ["compare", "{}"],
    ["compare", "{}", "{}"],
    ["satellite", "--run", "{}"],
]


def a_run(root: Path, at: float) -> Path:
    """That was started so many seconds after 1970."""
    folder = RunFolder(root)
    store_config(Config(), folder.config)
    folder.token.parent.mkdir()
    os.utime(folder.config, (at, at))
    return root


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_names_the_runs_below_the_newest_first(command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    older, newer = a_run(tmp_path / "outputs" / "a" / "1", 100), a_run(tmp_path / "outputs" / "b" / "2", 200)
    assert run([word.format(tmp_path / "outputs") for word in command]) == 2
    said = capsys.readouterr()
    first, *rest = said.err.splitlines()
    assert first.endswith(f"='{tmp_path}/outputs': name a run folder, one that holds config.yaml; 2 runs lie below it, the newest first:")
    assert [line.split()[:3] for line in rest] == [[str(newer), "never", "started,"], [str(older), "never", "started,"]] and not said.out


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(("name", "why"), [("empty", "no run lies below it"), ("run/logs", "this lies in the run {}/run")])
def test_every_command_says_where_else_a_folder_stands(
    command: list[str], name: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    a_run(tmp_path / "run", 100)
    (tmp_path / name).mkdir()
    assert run([word.format(tmp_path / name) for word in command]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"name a run folder, one that holds config.yaml; {why.format(tmp_path)}")


def test_what_is_not_there_is_told_from_what_is_no_run(tmp_path: Path):
    assert nearby(str(tmp_path / "gone")) == "; there is nothing of that name"
    (tmp_path / "file").touch()
    assert nearby(str(tmp_path / "file")) == "; no run lies below it"


def test_of_many_runs_the_newest_are_shown_and_the_others_counted(tmp_path: Path):
    for number in range(SHOWN + 3):
        a_run(tmp_path / str(number), 1000.0 * number)
    first, *lines, last = nearby(str(tmp_path)).splitlines()
    assert first == "; 13 runs lie below it, the newest first:" and last == "  and 3 older ones"
    assert [Path(line.split()[0]).name for line in lines] == [str(number) for number in range(SHOWN + 2, 2, -1)]


def test_links_that_lead_back_and_what_is_no_run_are_passed_over(tmp_path: Path):
    (tmp_path / "conf").mkdir()
    store_config(Config(), tmp_path / "conf" / "config.yaml")
    elsewhere = a_run(tmp_path / "elsewhere" / "run", 100)
    site = tmp_path / "site"
    site.mkdir()
    (site / "outputs").symlink_to(elsewhere.parent)
    (site / "back").symlink_to(site)
    (site / "latest").symlink_to(elsewhere)
    assert nearby(str(site)).count("never started") == 1
    assert nearby(str(tmp_path / "conf")) == "; no run lies below it"


def test_a_damaged_run_is_named_as_one(tmp_path: Path):
    a_run(tmp_path / "run", 100)
    (tmp_path / "run" / "status.json").write_text("{")
    assert f"  {tmp_path}/run  damaged: its status.json is damaged" in nearby(str(tmp_path))
