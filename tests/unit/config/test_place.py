"""Run folder, cache and scratch are where DESIGN §10 puts them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gyre_hpc.config.place import above_scratch, cache_folder, claim_run_folder, scratch_folder
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.config.stored import store_config
from gyre_hpc.errors import UserError


def test_two_starts_in_one_second_get_two_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    first, second = (claim_run_folder(Config(seed=3), 1e9).root for _ in range(2))
    assert first != second
    assert first.parent == second.parent == tmp_path / "outputs" / "quickstart"
    assert first.name.endswith("-3")


def test_a_named_folder_that_holds_a_run_is_refused(tmp_path: Path):
    config = Config()
    config.paths.run = str(tmp_path / "run")
    assert claim_run_folder(config, 0.0).root == tmp_path / "run"
    store_config(config, tmp_path / "run" / "config.yaml")
    with pytest.raises(UserError, match="resume="):
        claim_run_folder(config, 0.0)


def test_a_resumed_run_keeps_its_folder(tmp_path: Path):
    assert claim_run_folder(Config(resume=str(tmp_path)), 0.0).root == tmp_path


def test_the_cache_follows_the_users_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder(Config()) == tmp_path / "xdg" / "gyre_hpc"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder(Config()) == tmp_path / "home" / ".cache" / "gyre_hpc"


def test_scratch_is_private_short_and_one_per_run(tmp_path: Path):
    config = Config()
    config.paths.scratch = str(tmp_path)
    runs = [RunFolder(tmp_path / name) for name in ("a", "b")]
    for run in runs:
        run.root.mkdir()
    folders = [scratch_folder(config, run) for run in runs]
    assert folders[0] != folders[1] and folders[0] == scratch_folder(config, runs[0])
    assert folders[0].stat().st_mode & 0o777 == 0o700
    assert len(folders[0].name) < 30


def _as_link(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to(folder.with_name("elsewhere"))


@pytest.mark.parametrize(
    ("change", "why"), [(_as_link, "is a link"), (lambda folder: folder.chmod(0o750), "is open to others")], ids=["link", "open"]
)
def test_a_scratch_folder_that_others_may_have_made_is_refused(tmp_path: Path, change: Callable[[Path], None], why: str):
    config = Config()
    config.paths.scratch = str(tmp_path)
    (tmp_path / "run").mkdir()
    run = RunFolder(tmp_path / "run")
    change(scratch_folder(config, run))
    with pytest.raises(UserError, match=why) as caught:
        scratch_folder(config, run)
    assert caught.value.field == "paths.scratch" and "remove it" in caught.value.remedy


def test_two_nodes_on_one_file_system_have_a_scratch_folder_each(tmp_path: Path):
    config, run = Config(), RunFolder(tmp_path / "run")
    config.paths.scratch = str(tmp_path)
    run.root.mkdir()
    names = [scratch_folder(config, run, node).name for node in ("", "1", "j77n0")]
    assert len(set(names)) == 3 and names[1] == f"{names[0]}-1"


def test_two_starts_in_one_named_folder_are_one_run(tmp_path: Path):
    config = Config()
    config.paths.run = str(tmp_path / "run")
    claim_run_folder(config, 0.0)
    with pytest.raises(UserError, match="another start has just taken it"):
        claim_run_folder(config, 0.0)


@pytest.mark.parametrize("name", ["events", "journal", "checkpoints", "state", "tensorboard"])
def test_a_named_folder_with_what_looks_like_ours_is_not_written_over(tmp_path: Path, name: str):
    (tmp_path / name).mkdir()
    config = Config()
    config.paths.run = str(tmp_path)
    with pytest.raises(UserError, match=f"paths.run.*{name}"):
        claim_run_folder(config, 0.0)


@pytest.mark.parametrize("key", ["run", "cache", "scratch"])
@pytest.mark.parametrize("below", ["file", "file/below", "~nobody_of_this_name/x"])
def test_a_folder_that_cannot_be_made_is_bad_input(tmp_path: Path, key: str, below: str):
    (tmp_path / "file").touch()
    config = Config()
    setattr(config.paths, key, below if below.startswith("~") else str(tmp_path / below))
    with pytest.raises(UserError, match=f"paths.{key}=.*cannot be used.*name a folder"):
        {"run": lambda: claim_run_folder(config, 0.0), "cache": lambda: cache_folder(config), "scratch": lambda: above_scratch(config)}[
            key
        ]()


def test_a_place_for_new_runs_that_cannot_be_made_is_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outputs").touch()
    with pytest.raises(UserError, match="paths.run"):
        claim_run_folder(Config(), 0.0)
