"""What a launcher says of a run that failed, from the log its reason names."""

import json
from pathlib import Path

import pytest

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.errors import UserError
from gyre_hpc.launch.folder import Claim
from gyre_hpc.launch.local import say_failed
from gyre_hpc.shell.refusal import refusing
from gyre_hpc.supervisor.attempts import end_of


def said(root: Path, reason: str, log: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The second line."""
    folder = RunFolder(root)
    end_of(folder, 1).parent.mkdir(parents=True)
    end_of(folder, 1).write_text(json.dumps({"reason": f"{reason}; see logs/cell-0.log"}))
    folder.log("cell-0").parent.mkdir(parents=True)
    folder.log("cell-0").write_text(log)
    say_failed(Claim(folder=folder, attempt=1), 2)
    return capsys.readouterr().err.splitlines()[1].strip()


def test_a_refusal_is_found_though_others_write_after_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def live() -> None:
        raise UserError("engine.sglang.flags", "unknown", "see its log")

    assert refusing(live) == 2
    log = f"INFO begins\n{capsys.readouterr().err}failed (exitcode: 2) local_rank: 0\n======\n\n"
    assert said(tmp_path, "cell-0 refused its configuration", log, capsys) == "engine.sglang.flags='unknown': see its log"


def test_of_another_end_the_last_line_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = "refused: of an attempt before\nTraceback\nRuntimeError: no memory\n\n"
    assert said(tmp_path, "cell-0, the core, failed 6 starts in a row", log, capsys) == "RuntimeError: no memory"
