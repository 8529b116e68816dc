"""What a launcher leaves when its run is over: summary and report, however it ended."""

import json
from pathlib import Path

import pytest

from gyre_hpc.errors import UserError
from gyre_hpc.launch.folder import Claim
from gyre_hpc.launch.local import conclude
from gyre_hpc.machines.supervision import STOPPED
from gyre_hpc.supervisor.attempts import end_of
from tests.unit.report.made_up_run import make_run


def claim_of(root: Path) -> Claim:
    claim = Claim(folder=make_run(root), attempt=1)
    end_of(claim.folder, 1).parent.mkdir(parents=True, exist_ok=True)
    end_of(claim.folder, 1).write_text(json.dumps({"reason": "the engine cannot do this"}))
    return claim


@pytest.mark.parametrize(
    ("code", "word"), [(0, "pass rate"), (STOPPED, "run stopped"), (1, "run failed"), (2, "run failed"), (-9, "run failed")]
)
def test_every_end_leaves_summary_and_report(code: int, word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    claim = claim_of(tmp_path / "run")
    assert conclude(claim, code) == (code if code >= 0 else 1)
    assert json.loads(claim.folder.summary.read_text())["updates"] == 3 and claim.folder.report.stat().st_size
    said = capsys.readouterr()
    assert word in (said.err if word == "run failed" else said.out)


@pytest.mark.parametrize("code", [STOPPED, 1, 2])
def test_a_report_that_cannot_be_written_is_told_and_changes_no_exit_code(code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    claim = claim_of(tmp_path / "run")
    claim.folder.report.mkdir()
    assert conclude(claim, code) == code
    assert f"gyre report {claim.folder.root}" in capsys.readouterr().err


def test_a_good_run_without_its_report_says_so_by_its_exit_code(tmp_path: Path):
    claim = claim_of(tmp_path / "run")
    claim.folder.report.mkdir()
    with pytest.raises(UserError, match="no report"):
        conclude(claim, 0)
