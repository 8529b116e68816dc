"""A file that is replaced whole is the old one or the new one, and a failed write leaves nothing beside it."""

import resource
import stat
from pathlib import Path

import pytest

from gyre_hpc.whole_file import write_whole


def test_it_is_replaced_with_the_rights_asked_for(tmp_path: Path):
    path = tmp_path / "new" / "file"
    write_whole(path, b"one")
    (tmp_path / "new" / "file.tmp").write_text("left by a crash")
    write_whole(path, b"two", mode=0o600, durable=True)
    assert path.read_bytes() == b"two" and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]


def test_a_write_that_fails_half_way_keeps_the_old_file_and_leaves_nothing_beside_it(tmp_path: Path):
    path = tmp_path / "file"
    write_whole(path, b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            write_whole(path, b"x" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == b"old" and [entry.name for entry in tmp_path.iterdir()] == ["file"]
