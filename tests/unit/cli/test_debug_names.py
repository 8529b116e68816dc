"""gyre debug and gyre logs: who names no process, or one that there is not, is told which there are."""

from pathlib import Path

import pytest

from gyre_hpc.cli.commands import run
from gyre_hpc.machines.base import Finished
from gyre_hpc.machines.supervision import WriteAnswer
from gyre_hpc.protocol.people import Command, CommandKind, Wish
from gyre_hpc.protocol.process_names import in_short
from tests.unit.machines.test_supervision import actions, live_bench
from tests.unit.report.made_up_run import Tape, make_run

ALL = "controller, gateway-0, runner-0, cell-0..3"


@pytest.mark.parametrize(
    ("words", "value"), [([], "''"), (["controller"], "'controller'"), (["cell", "1"], "'cell 1'"), (["--process", ""], "''")]
)
def test_who_names_no_process_is_told_which_there_are(words: list[str], value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    make_run(tmp_path)
    assert run(["debug", str(tmp_path), *words]) == 2
    line = f"gyre debug: --process={value}: name one, as in --process controller, or --cell N; there are {ALL}\n"
    assert capsys.readouterr().err == line


def test_processes_that_came_later_are_among_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = make_run(tmp_path)
    (folder.attempts / "1").mkdir(parents=True)
    supervisor = Tape("supervisor-0")
    for process in ("cell-3", "cell-7", "runner-5"):
        supervisor.note(1, "process_registered", process=process, incarnation=1, pid=77)
    supervisor.write(folder)
    assert run(["debug", str(tmp_path)]) == 2
    assert "there are controller, gateway-0, runner-0, runner-5, cell-0..3, cell-7" in capsys.readouterr().err
    assert run(["debug", str(tmp_path), "--process", "gateway", "--py-spy"]) == 2
    told = "--process='gateway': no such process has spoken in attempt 1; those that have: cell-3, cell-7, runner-5"
    assert told in capsys.readouterr().err


def test_logs_of_nobody_name_whose_there_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = make_run(tmp_path)
    folder.log("x").parent.mkdir(exist_ok=True)
    for name in ("cell-0", "cell-1", "controller"):
        folder.log(name).write_text("here\n")
    assert run(["logs", str(tmp_path), "--process", "cell1"]) == 2
    assert capsys.readouterr().err.endswith("holds no log of cell1; it has those of cell-0..1, controller\n")


def test_an_order_for_a_process_that_there_is_not_is_answered_with_those_there_are_in_short():
    wish = Wish(CommandKind.stacks, 3, "cell1")
    (action,) = actions(live_bench().tell(Finished("commands", (Command("1-a", wish),))), WriteAnswer)
    assert "there is no process 'cell1'; there are " in action.answer.text and "cell-0.." in action.answer.text


@pytest.mark.parametrize(
    ("names", "short"),
    [
        ([], ""),
        (["controller"], "controller"),
        (["cell-2", "controller", "cell-0", "cell-1", "cell-9"], "cell-0..2, cell-9, controller"),
        (["cell-01", "cell-1", "supervisor-jn1x5n0", "supervisor-0"], "cell-01, cell-1, supervisor-jn1x5n0, supervisor-0"),
    ],
)
def test_names_in_short(names: list[str], short: str):
    assert in_short(names) == short
