"""Workspaces: files stay inside, nothing is followed, everything can be removed."""

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.runner.workspaces import Workspaces, remove_tree, write_inside
from gyre_hpc.suites.base import Task

EXECUTION = "train-0-0-0"


def task_with(**files: str) -> Task:
    return Task(suite="s", split="train", index=0, family="f", instruction="i", files=files)


def test_a_prepared_workspace_holds_the_tasks_files_and_nothing_of_an_earlier_try(tmp_path: Path):
    workspaces = Workspaces(tmp_path)
    workspace = workspaces.prepare(EXECUTION, task_with(a="1"))
    (workspace / "left").touch()
    workspaces.prepare(EXECUTION, Task(suite="s", split="t", index=0, family="f", instruction="i", files={"d/b": "2"}))
    assert [str(path.relative_to(workspace)) for path in sorted(workspace.rglob("*"))] == ["d", "d/b"]
    assert workspace.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x", "", ".", "a\0b"])
def test_a_file_that_leaves_its_workspace_is_refused(tmp_path: Path, name: str):
    (tmp_path / "w").mkdir()
    with pytest.raises((ValueError, OSError)):
        write_inside(tmp_path / "w", name, "x")
    assert not (tmp_path / "x").exists()


@given(parts=st.lists(st.sampled_from(["..", ".", "a", "b", "/", "//", "c d"]), min_size=1, max_size=6))
def test_no_name_writes_outside(tmp_path_factory: pytest.TempPathFactory, parts: list[str]):
    root = tmp_path_factory.mktemp("names")
    workspace = root / "w"
    workspace.mkdir()
    with contextlib.suppress(ValueError, OSError):
        write_inside(workspace, "/".join(parts), "x")
    assert [path for path in root.rglob("*") if path.is_file() and not path.is_relative_to(workspace)] == []


def test_a_link_on_the_way_is_not_followed(tmp_path: Path):
    (tmp_path / "w").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "w" / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises((ValueError, OSError)):
        write_inside(tmp_path / "w", "link/x", "x")
    (tmp_path / "w" / "file").symlink_to(tmp_path / "elsewhere" / "y")
    with pytest.raises(OSError):
        write_inside(tmp_path / "w", "file", "x")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_an_id_that_is_no_execution_id_names_no_folder(tmp_path: Path):
    with pytest.raises(ValueError):
        Workspaces(tmp_path).path("../../etc")


def test_removal_takes_links_not_what_they_name(tmp_path: Path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "link").symlink_to(tmp_path / "kept")
    remove_tree(tmp_path / "w")
    assert (tmp_path / "kept" / "file").exists() and not (tmp_path / "w").exists()


def test_folders_without_rights_are_removed_by_an_ordinary_user(tmp_path: Path):
    """Root may remove anything anyway, so as nobody where we are root."""
    pid = os.fork()
    if pid == 0:
        try:
            os.chdir(tmp_path)
            if os.getuid() == 0:
                os.chown(tmp_path, 65534, 65534)
                os.setuid(65534)
            deep = Path("w/a/b")
            deep.mkdir(parents=True)
            (deep / "f").touch()
            for folder, mode in ((deep, 0), (deep.parent, 0o100), (deep.parent.parent, 0o500)):
                folder.chmod(mode)
            remove_tree(Path("w"))
            os._exit(0 if not Path("w").exists() else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_tree_of_thousands_of_levels_is_removed(tmp_path: Path):
    (tmp_path / "w").mkdir()
    here = os.open(tmp_path / "w", os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    remove_tree(tmp_path / "w")
    assert not (tmp_path / "w").exists()


def test_kept_workspaces_survive_removal_and_sweep(tmp_path: Path):
    workspaces = Workspaces(tmp_path, keep=True)
    workspace = workspaces.prepare(EXECUTION, task_with(a="1"))
    workspaces.remove(EXECUTION)
    workspaces.sweep()
    assert workspace.exists()
    Workspaces(tmp_path).sweep()
    assert not workspace.exists()


def test_a_home_lies_beside_its_workspace_holds_its_files_and_goes_with_it(tmp_path: Path):
    workspaces = Workspaces(tmp_path)
    workspace = workspaces.prepare(EXECUTION, task_with(a="1"))
    home = workspaces.furnish(EXECUTION, {".tool/settings.json": "{}", "plain": "x"})
    assert home == workspaces.home(EXECUTION) and not home.is_relative_to(workspace)
    assert (home / ".tool" / "settings.json").read_text() == "{}"
    assert home.stat().st_mode & 0o777 == 0o700
    (home / "left").touch()
    workspaces.furnish(EXECUTION, {})
    assert list(home.iterdir()) == []
    assert [path.name for path in workspace.iterdir()] == ["a"]
    workspaces.remove(EXECUTION)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["/etc/x", "../train-0-0-0/x", ""])
def test_a_file_of_a_harness_that_leaves_its_home_is_refused(tmp_path: Path, name: str):
    with pytest.raises((ValueError, OSError)):
        Workspaces(tmp_path).furnish(EXECUTION, {name: "x"})


def test_a_sweep_takes_homes_too(tmp_path: Path):
    Workspaces(tmp_path).furnish(EXECUTION, {"a": "1"})
    Workspaces(tmp_path).sweep()
    assert list(tmp_path.iterdir()) == []
