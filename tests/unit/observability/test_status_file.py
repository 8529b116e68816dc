"""status.json is replaced whole."""

from pathlib import Path

import msgspec
import pytest

from gyre_hpc.observability.status import CellStatus, Status, WaitStatus, read_status, write_status


def test_it_comes_back_as_it_was_written(tmp_path: Path):
    status = Status(
        time=1.0,
        phase="training",
        cells=(CellStatus(name="cell-0", role="train", state="train", reason="waits_for_groups"),),
        waits=(WaitStatus(owner="runner", reason="batch", deadline=9.0),),
    )
    write_status(tmp_path / "new" / "status.json", status)
    assert read_status(tmp_path / "new" / "status.json") == status
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["status.json"]


def test_before_the_first_writing_there_is_none(tmp_path: Path):
    assert read_status(tmp_path / "status.json") is None


def test_a_reader_holding_the_old_file_still_sees_it_whole(tmp_path: Path):
    path = tmp_path / "status.json"
    write_status(path, Status(time=1.0))
    with path.open("rb") as old:
        write_status(path, Status(time=2.0, phase="x" * 10000))
        assert msgspec.json.decode(old.read(), type=Status).time == 1.0


def test_a_wrong_field_is_named(tmp_path: Path):
    (tmp_path / "status.json").write_text('{"time": 1.0, "update": "three"}')
    with pytest.raises(msgspec.ValidationError, match="update"):
        read_status(tmp_path / "status.json")
