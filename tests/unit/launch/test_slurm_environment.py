"""launch.environment=archive: what is installed becomes one file, and on a node an environment that finds it."""

import os
import subprocess
from pathlib import Path

import pytest

from gyre_hpc.config.schema import Config, EnvironmentKind, PathsConfig
from gyre_hpc.launch.slurm import environment
from gyre_hpc.launch.slurm.environment import Archive, archive_of, make


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site-packages with one package, and what an installation of this project leaves in it."""
    folder = tmp_path / "site-packages"
    for name in ("told", "told-1.dist-info", "gyre_hpc-0.1.0.dist-info"):
        (folder / name).mkdir(parents=True)
    (folder / "told" / "__init__.py").write_text("WORD = 'packed'\n")
    (folder / "told-1.dist-info" / "RECORD").write_text("told/__init__.py,sha256=1,1\n")
    (folder / "__editable__.gyre_hpc.pth").write_text("import nosuch\n")
    monkeypatch.setattr(environment, "_packages", lambda: folder)
    return folder


def configured(tmp_path: Path) -> Config:
    config = Config(paths=PathsConfig(cache=str(tmp_path / "cache"), scratch=str(tmp_path / "scratch")))
    config.launch.environment = EnvironmentKind.archive
    return config


def packed(config: Config) -> Archive:
    archive = archive_of(config)
    assert archive is not None
    make(archive, lambda line: None)
    return archive


def unpacked(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "scratch").iterdir() if path.is_dir()]


def on_a_node(archive: Archive, program: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        ["bash", "-c", f'{archive.python} "$@"', "-", "-c", program], env=environ, capture_output=True, text=True, check=False, cwd="/"
    )


def test_a_node_unpacks_it_into_its_scratch_and_runs_what_was_packed(tmp_path: Path, packages: Path):
    archive = packed(configured(tmp_path))
    said = on_a_node(archive, "import told, sys; print(told.WORD, told.__file__, sys.prefix)")
    assert said.returncode == 0, said.stderr
    word, file, prefix = said.stdout.split()
    assert word == "packed" and Path(file).is_relative_to(tmp_path / "scratch") and Path(file).is_relative_to(prefix)
    assert not said.stderr, "nothing of our own installation came along"


def test_a_second_task_of_the_node_finds_it_unpacked(tmp_path: Path, packages: Path):
    archive = packed(configured(tmp_path))
    program = "import told, pathlib; file = pathlib.Path(told.__file__); print(file.stat().st_ino)"
    first, second = on_a_node(archive, program), on_a_node(archive, program)
    assert first.stdout == second.stdout != ""
    assert len(unpacked(tmp_path)) == 1


def test_what_was_unpacked_only_in_part_is_unpacked_again(tmp_path: Path, packages: Path):
    archive = packed(configured(tmp_path))
    on_a_node(archive, "pass")
    (there,) = unpacked(tmp_path)
    (there / "DONE").unlink()
    there.rename(f"{there}.new")
    said = on_a_node(archive, "import told; print(told.WORD)")
    assert said.stdout == "packed\n", said.stderr


def test_a_folder_of_its_name_that_was_not_unpacked_is_not_used(tmp_path: Path, packages: Path):
    archive = packed(configured(tmp_path))
    on_a_node(archive, "pass")
    (there,) = unpacked(tmp_path)
    (there / "DONE").unlink()
    said = on_a_node(archive, "print('ran')")
    assert said.returncode == 2 and str(there) in said.stderr and not said.stdout


def test_the_file_is_named_by_its_content_and_made_once(tmp_path: Path, packages: Path):
    config = configured(tmp_path)
    first = packed(config)
    written = first.file.stat().st_mtime_ns
    assert packed(config).file.stat().st_mtime_ns == written
    (packages / "told-1.dist-info" / "RECORD").write_text("told/__init__.py,sha256=2,1\n")
    assert packed(config).file != first.file
    assert not list(first.file.parent.glob("*.tmp"))


def test_a_damaged_archive_is_named_and_nothing_is_left(tmp_path: Path, packages: Path):
    archive = packed(configured(tmp_path))
    archive.file.write_bytes(b"no archive")
    said = on_a_node(archive, "pass")
    assert said.returncode == 2 and str(archive.file) in said.stderr
    assert not unpacked(tmp_path)


def test_other_environments_have_no_archive(tmp_path: Path):
    config = configured(tmp_path)
    config.launch.environment = EnvironmentKind.in_place
    assert archive_of(config) is None
