"""The console command: quick to help, one line on bad input."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gyre_hpc.cli.commands import COMMANDS, run
from gyre_hpc.observability.status import read_status, write_status
from tests.unit.report.made_up_run import make_run


def test_help_names_every_command_and_loads_nothing_heavy(capsys: pytest.CaptureFixture[str]):
    program = (
        "import sys\nfrom gyre_hpc.cli.commands import run\n"
        "try:\n    run(['--help'])\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('torch', 'hydra', 'omegaconf', 'rich', 'aiohttp', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.rstrip().endswith("[]")
    assert all(name in done.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        run([name, "--help"])
    assert caught.value.code == 0
    assert COMMANDS[name] in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("words", [["--help"], ["RUN"]])
@pytest.mark.parametrize("command", ["status", "attach", "logs", "stop"])
def test_watching_loads_no_torch(command: str, words: list[str], tmp_path: Path):
    make_run(tmp_path)
    program = (
        "import sys\nfrom gyre_hpc.cli.commands import run\n"
        "try:\n    run(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('torch', 'submitit', *(['omegaconf', 'rich'] if '--help' in sys.argv else [])) if name in sys.modules])"
    )
    argv = [word.replace("RUN", str(tmp_path)) for word in words]
    done = subprocess.run([sys.executable, "-c", program, command, *argv], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.rstrip().endswith("[]")


@pytest.mark.parametrize("command", ["status", "report", "attach", "logs", "stop"])
def test_a_folder_that_is_no_run_is_exit_code_2_and_one_line(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run([command, str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_logs_in_which_nothing_stands_are_told_from_a_command_that_does_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    make_run(tmp_path)
    logs = tmp_path / "logs"
    logs.mkdir(exist_ok=True)
    (logs / "cell-7.log").touch()
    assert run(["logs", str(tmp_path), "--cell", "7"]) == 0
    silent = capsys.readouterr()
    assert (silent.out, silent.err) == ("", "nothing printed so far by: cell-7\n")
    assert run(["logs", str(tmp_path), "-f", "--cell", "7"]) == 0  # the run is over: nothing to follow
    assert capsys.readouterr().err == f"nothing printed so far; waiting for lines. How the run goes: gyre attach {tmp_path}\n"
    (logs / "cell-7.log").write_text("here\n")
    assert run(["logs", str(tmp_path), "--cell", "7"]) == 0
    spoken = capsys.readouterr()
    assert (spoken.out, spoken.err) == ("cell-7 | here\n", "")


@pytest.mark.parametrize(
    "command", [["engine", "list"], ["engine", "install", "sglang"], ["harness", "list"], ["harness", "install", "codex"]]
)
def test_a_cache_that_cannot_be_is_told_under_the_name_that_was_used(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "file").write_text("")
    assert run([*command, "--cache", str(tmp_path / "file" / "below")]) == 2
    said = capsys.readouterr()
    assert len(said.err.splitlines()) == 1
    assert f"--cache='{tmp_path}/file/below'" in said.err and not said.out


def test_report_writes_both_files_and_prints_the_closing_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = make_run(tmp_path)
    assert run(["report", str(tmp_path)]) == 0
    assert folder.report.exists() and json.loads(folder.summary.read_text())["updates"] == 3
    assert capsys.readouterr().out.startswith("quickstart: pass rate 20.0 %")


def test_compare_needs_two_and_shows_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for name in ("a", "b"):
        make_run(tmp_path / name)
    assert run(["compare", str(tmp_path / "a")]) == 2
    capsys.readouterr()
    assert run(["compare", "--full", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:3]] == [f"{tmp_path.name}/a", f"{tmp_path.name}/b"]
    assert [name[-2:] for name in lines[4].split()] == ["/a", "/b"] and any(line.startswith("pass_rate_after") for line in lines)


@pytest.mark.parametrize("tasks", ["0", "-5"])
def test_an_evaluation_on_no_tasks_is_none(tasks: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["eval", str(make_run(tmp_path).root), "--tasks", tasks]) == 2
    assert f"--tasks={tasks}: give 1 or more" in capsys.readouterr().err


def test_no_seeds_is_no_proof(capsys: pytest.CaptureFixture[str]):
    assert run(["simtest", "--seeds", "0"]) == 2
    assert "--seeds=0: give 1 or more" in capsys.readouterr().err


def test_status_prints_the_file_as_it_is_and_beside_it_whether_the_run_lives(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = make_run(tmp_path)
    assert run(["status", "--json", str(tmp_path)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed.pop("watch")["state"] == "never_started"
    assert printed == json.loads(folder.status.read_text())
    assert run(["status", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "quickstart · attempt 1" in shown and "replay:" not in shown
    assert "cells needed" not in shown, "of a run that does not live nothing is needed"


def test_status_says_what_an_attempt_took_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = make_run(tmp_path)
    status = read_status(folder.status)
    assert status is not None
    totals = {
        "executions_replayed": 7.0,
        "tokens_at_stake": 900.0,
        "tokens_saved": 850.0,
        "replay_diverged": 2.0,
        "executions_restarted": 1.0,
    }
    write_status(folder.status, msgspec.structs.replace(status, totals=totals))
    assert run(["status", str(tmp_path)]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("replay:"))
    assert line == (
        "replay: 7 executions taken up from the journal, 850 of 900 recorded tokens given out again, 2 went another way, 1 begun anew"
    )
