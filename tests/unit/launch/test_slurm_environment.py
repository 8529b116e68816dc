"""A packed environment: one archive per content, which works where a node unpacks it and knows where it came from."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gyre_hpc.config.schema import Config, EnvironmentKind, LaunchConfig, PathsConfig
from gyre_hpc.errors import UserError
from gyre_hpc.launch.slurm import environment
from gyre_hpc.launch.slurm.environment import Archive, archive_of, make


def config_for(root: Path, kind: EnvironmentKind = EnvironmentKind.archive) -> Config:
    return Config(launch=LaunchConfig(environment=kind), paths=PathsConfig(cache=str(root / "cache"), scratch=str(root / "scratch")))


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small site-packages in place of ours: one package as pip leaves it, and this project as developers install it."""
    folder = tmp_path / "site-packages"
    for name, text in (
        ("pack/__init__.py", "ANSWER = 42\n"),
        ("pack-1.dist-info/RECORD", "pack/__init__.py,sha256=abc,12\n"),
        ("__editable___gyre_hpc_0_1_0_finder.py", "raise SystemExit('a path of another machine')\n"),
        ("__editable__.gyre_hpc-0.1.0.pth", "import __editable___gyre_hpc_0_1_0_finder\n"),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.setattr(environment, "_packages", lambda: folder)
    return folder


def made(root: Path) -> Archive:
    archive = archive_of(config_for(root))
    assert archive is not None
    make(archive, lambda line: None)
    return archive


def enter(archive: Archive, *argv: str) -> str:
    """What the node's Python prints."""
    done = subprocess.run(f"{archive.python} {' '.join(argv)}", shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("kind", [EnvironmentKind.in_place, EnvironmentKind.container])
def test_other_kinds_are_packed_by_nobody(tmp_path: Path, kind: EnvironmentKind):
    assert archive_of(config_for(tmp_path, kind)) is None


def test_a_node_has_the_packages_in_its_scratch_and_nothing_of_the_submitting_place(tmp_path: Path, packages: Path):
    archive = made(tmp_path)
    program = "'import pack, sys; print(pack.__file__, pack.ANSWER, sys.prefix, sys.version_info[:2])'"
    file, answer, prefix, version = enter(archive, "-c", program).split(maxsplit=3)
    assert Path(prefix).name.endswith(archive.file.stem) and Path(prefix).parent == tmp_path / "scratch"
    assert file.startswith(prefix) and answer == "42" and version == str(sys.version_info[:2])


def test_it_is_unpacked_once_and_jobs_that_come_at_once_share_it(tmp_path: Path, packages: Path):
    archive = made(tmp_path)
    jobs = [subprocess.Popen(f"{archive.python} -c 'import pack'", shell=True) for _ in range(4)]
    assert [job.wait() for job in jobs] == [0] * 4
    (home,) = (path for path in (tmp_path / "scratch").iterdir() if path.is_dir())
    before = (home / "DONE").stat().st_mtime_ns
    enter(archive, "-c", "'import pack'")
    assert (home / "DONE").stat().st_mtime_ns == before


def test_it_is_made_once_until_what_is_installed_changes(tmp_path: Path, packages: Path):
    first = made(tmp_path)
    stamp = first.file.stat().st_mtime_ns
    assert made(tmp_path).file == first.file and first.file.stat().st_mtime_ns == stamp
    (packages / "pack-1.dist-info" / "RECORD").write_text("pack/__init__.py,sha256=def,12\n")
    assert made(tmp_path).file != first.file
    (packages / "by_hand.py").write_text("")
    assert len({path.stem for path in first.file.parent.glob("*.tar")} | {made(tmp_path).file.stem}) == 3


def test_a_torn_unpacking_is_done_again(tmp_path: Path, packages: Path):
    archive = made(tmp_path)
    torn = tmp_path / "scratch" / f"gyre-env-{os.getuid()}-{archive.file.stem}.new"
    (torn / "lib").mkdir(parents=True)
    assert enter(archive, "-c", "'import pack; print(pack.ANSWER)'") == "42" and not torn.exists()


def test_a_job_that_came_by_an_archive_names_the_same_one(tmp_path: Path, packages: Path, monkeypatch: pytest.MonkeyPatch):
    archive = made(tmp_path)
    monkeypatch.setattr(sys, "prefix", enter(archive, "-c", "'import sys; print(sys.prefix)'"))
    assert archive_of(config_for(tmp_path)) == archive
    archive.file.unlink()
    with pytest.raises(UserError, match="submit again"):
        make(archive, lambda line: None)


def test_an_archive_that_is_damaged_is_said_by_name(tmp_path: Path, packages: Path):
    archive = made(tmp_path)
    archive.file.write_bytes(b"no tar")
    done = subprocess.run(f"{archive.python} -c pass", shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and str(archive.file) in done.stderr
    assert not [path for path in (tmp_path / "scratch").iterdir() if path.is_dir()]
