"""A run in which no execution leaves anything to train on ends with exit code 1 and says why; once that is mended it goes on."""

import json
import os
from pathlib import Path

import pytest

from gyre_hpc.observability.status import read_status
from tests.fakes.whole_run import REHEARSAL, WholeRun

WHY = "bwrap: Creating new namespace failed: No space left on device"
BWRAP = f"""#!/bin/sh
# Works wherever it is only tried; the sandbox of every execution fails.
case "$*" in *runner-0-*) echo "{WHY}" >&2; exit 1 ;; esac
"""


@pytest.fixture
def without_sandboxes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "bwrap"
    program.parent.mkdir()
    program.write_text(BWRAP)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")


def said_in_all_places(run: WholeRun, *words: str) -> None:
    status = read_status(run.folder.status)
    assert status is not None
    end = json.loads((run.folder.attempts / "1" / "end.json").read_text())
    (finished,) = run.events("run_finished")
    for text in (run.printed, end["reason"], finished.fields["reason"], status.message, " ".join(status.alarms)):
        assert all(word in text for word in ("infra_error", WHY)), text
    assert all(word in end["reason"] for word in words), end["reason"]
    assert not run.events("applied"), "an update was made of nothing"


def test_it_ends_after_a_window_of_them_and_goes_on_when_the_cause_is_gone(
    tmp_path: Path, without_sandboxes: None, monkeypatch: pytest.MonkeyPatch
):
    with WholeRun(tmp_path, *REHEARSAL, "sandbox.kind=bwrap", "suite.fruitless_window=10") as run:
        assert run.wait_end() == 1, run.printed
        said_in_all_places(run, "executions in a row", "suite.fruitless_window=10")
    with WholeRun(tmp_path, f"resume={run.folder.root}", "sandbox.kind=none") as run:
        assert run.wait_end() == 0, run.printed
        summary = run.summary()
        assert summary["tokens"]["trained"] > 0 and summary["attempts"] == 2
        assert len(run.consumed()) == summary["updates"] * 3 * 4


def test_without_a_window_no_update_is_made_of_nothing_either(tmp_path: Path, without_sandboxes: None):
    with WholeRun(tmp_path, *REHEARSAL, "sandbox.kind=bwrap", "suite.fruitless_window=0") as run:
        assert run.wait_end() == 1, run.printed
        said_in_all_places(run, "batch of update 0", "3 times in a row")
