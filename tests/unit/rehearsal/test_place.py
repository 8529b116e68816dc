"""Folders of checks: gone at the end, kept for a person, or swept by the next check when their own was killed."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gyre_hpc.rehearsal.place import place

DIES = """
import os
from gyre_hpc.rehearsal.place import place
with place(keep=False) as folder:
    (folder / "journal").mkdir()
    print(folder, flush=True)
    os.kill(os.getpid(), 9)
"""


@pytest.fixture(autouse=True)
def _aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


def test_a_folder_is_gone_at_the_end_unless_it_is_to_be_kept() -> None:
    with pytest.raises(KeyboardInterrupt), place(keep=False) as gone:
        raise KeyboardInterrupt
    with place(keep=True) as kept:
        (kept / "log").touch()
    with place(keep=False):
        assert not gone.exists()
        assert [one.name for one in kept.iterdir()] == ["log"]


def test_what_a_killed_check_left_goes_with_the_next_one_and_what_is_in_use_stays() -> None:
    left = Path(subprocess.run([sys.executable, "-c", DIES], capture_output=True, text=True, check=False).stdout.strip())
    assert (left / "journal").is_dir()
    with place(keep=False) as used:
        assert not left.exists()
        (used / "journal").mkdir()
        with place(keep=False):
            assert (used / "journal").is_dir()
