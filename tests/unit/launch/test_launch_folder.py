"""What lies in a run folder before its first process."""

import errno
import stat
from pathlib import Path

import pytest

from gyre_hpc.config.schema import Config, PathsConfig
from gyre_hpc.config.stored import load_config
from gyre_hpc.errors import UserError
from gyre_hpc.launch.folder import claimed_folder, fill, prepare
from gyre_hpc.observability.events import read_events


def config_for(root: Path, resume: bool = False) -> Config:
    return Config(paths=PathsConfig(run=str(root)), resume=str(root) if resume else "")


def test_a_new_run_gets_config_token_first_attempt_and_one_event(tmp_path: Path):
    claim = prepare(config_for(tmp_path / "run"), 0.0)
    assert claim.attempt == 1 and load_config(claim.folder.config).paths.run == str(tmp_path / "run")
    assert stat.S_IMODE(claim.folder.token.stat().st_mode) == 0o600 and len(claim.folder.token.read_text()) == 64
    assert [event.kind for event in read_events(claim.folder.events_folder)] == ["run_started"]


def test_resuming_keeps_the_token_and_takes_the_next_attempt(tmp_path: Path):
    first = prepare(config_for(tmp_path / "run"), 0.0)
    token = first.folder.token.read_text()
    second = prepare(config_for(tmp_path / "run", resume=True), 0.0)
    assert second.attempt == 2 and second.folder.token.read_text() == token
    assert load_config(second.folder.config).resume == ""
    assert len(read_events(second.folder.events_folder)) == 1


def test_an_empty_token_is_made_anew(tmp_path: Path):
    prepare(config_for(tmp_path / "run"), 0.0).folder.token.write_text("")
    assert len(prepare(config_for(tmp_path / "run", resume=True), 0.0).folder.token.read_text()) == 64


def test_a_folder_that_takes_no_writes_is_bad_input_and_left_as_it_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    root = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr("gyre_hpc.launch.folder.store_config", full)
        with pytest.raises(UserError, match="paths.run=.*no space left"):
            prepare(config_for(root), 0.0)
        assert not root.exists()
        root.mkdir()
        with pytest.raises(UserError):
            prepare(config_for(root), 0.0)
    assert not list(root.iterdir()), "what was there stays"
    prepare(config_for(root), 0.0)
    with monkeypatch.context() as patched:
        patched.setattr("gyre_hpc.launch.folder.store_config", full)
        with pytest.raises(UserError, match="resume=.*no space left"):
            prepare(config_for(root, resume=True), 0.0)
    assert [path.name for path in (root / "attempts").iterdir()] == ["1"], "the attempt that may live there goes on"


def test_of_a_start_that_was_refused_no_folder_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError), claimed_folder(Config(), 1e9) as folder:
        fill(folder, Config())
        raise UserError("cluster.slurm", "", "SLURM refused the job")
    assert not (tmp_path / "outputs").exists()
    (tmp_path / "outputs").mkdir()
    with pytest.raises(UserError), claimed_folder(Config(), 1e9) as folder:
        (folder.root / "mine").touch()
        raise UserError("cluster.slurm", "", "SLURM refused the job")
    assert [path.name for path in folder.root.iterdir()] == ["mine"], "what others put there stays"


def test_a_folder_that_holds_a_run_is_not_taken_again(tmp_path: Path):
    prepare(config_for(tmp_path / "run"), 0.0)
    with pytest.raises(UserError, match="paths.run"):
        prepare(config_for(tmp_path / "run"), 0.0)
