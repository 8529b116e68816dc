"""gyre satellite --here: why a satellite did not stay is said where it was started."""

from pathlib import Path

import pytest

from gyre_hpc.cli.commands import run
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.config.stored import store_config
from gyre_hpc.launch.slurm import satellite


@pytest.mark.parametrize(
    ("code", "log", "told"),
    [
        (2, "warming up\nnetwork.interface='hostname': name another\n\n", ": network.interface='hostname': name another"),
        (71, None, ": it said nothing"),
        (0, "bye\n", ""),
        (130, "bye\n", ""),
        (-15, None, ""),
        (-9, None, ": it said nothing"),
    ],
)
def test_why_it_did_not_stay_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int, log: str | None, told: str
):
    store_config(Config(), RunFolder(tmp_path).config)
    (tmp_path / "logs").mkdir()

    def held(folder: RunFolder, name: str, *_: object, **__: object) -> int:
        if log is not None:
            folder.log(name).write_text(log)
        return code

    monkeypatch.setattr(satellite, "check_joinable", lambda *_, **__: None)
    monkeypatch.setattr(satellite, "hold", held)
    assert run(["satellite", "--run", str(tmp_path), "--here"]) == code
    said = capsys.readouterr().err
    assert said.rstrip().endswith(f"ended with exit code {code}{told}") if told else said == ""


@pytest.mark.parametrize("option", [["--nodes", "3"], ["--partition", "p"], ["--time", "5"], ["--option", "nice=1"]])
def test_what_only_a_job_can_have_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], option: list[str]):
    store_config(Config(), RunFolder(tmp_path).config)
    assert run(["satellite", "--run", str(tmp_path), "--here", *option]) == 2
    assert option[0] in capsys.readouterr().err
