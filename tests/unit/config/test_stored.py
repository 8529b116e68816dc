"""config.yaml of a run folder is whole and of this version, or refused with what is wrong and what to do."""

from pathlib import Path

import pytest

from gyre_hpc.config.resume import resumed
from gyre_hpc.config.schema import Config
from gyre_hpc.config.stored import load_config, store_config
from gyre_hpc.errors import UserError
from gyre_hpc.report.story import read_story


def cut(text: str) -> str:
    return text[: text.index("harness:")]


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe\x00", b"a: [", b"- 1", b"word", b"experiment: 1\nnosuch: 2\n", None, "cut"],
    ids=["empty", "binary", "no-yaml", "list", "word", "foreign", "folder", "cut"],
)
def test_a_damaged_configuration_is_bad_input_wherever_it_is_read(tmp_path: Path, content: bytes | str | None):
    path = tmp_path / "config.yaml"
    store_config(Config(), path)
    if content == "cut":  # a default in the place of what is lost would change the run silently
        path.write_text(cut(path.read_text()))
    elif content is None:
        path.unlink()
        path.mkdir()
    else:
        assert isinstance(content, bytes)
        path.write_bytes(content)
    for read in (load_config, lambda path: resumed(str(path.parent), ()), lambda path: read_story(path.parent)):
        with pytest.raises(UserError, match=r"config.yaml=.*name the folder of an undamaged run"):
            read(path)


def test_a_file_is_no_run_folder(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="resume=.*name a run folder"):
        resumed(str(tmp_path / "file"), ())
    with pytest.raises(UserError, match="RUN=.*name a run folder"):
        read_story(tmp_path / "file")


@pytest.mark.parametrize("content", [b"", b'{"time":', b'{"time": "late"}'])
def test_a_damaged_status_is_bad_input(tmp_path: Path, content: bytes):
    store_config(Config(), tmp_path / "config.yaml")
    (tmp_path / "status.json").write_bytes(content)
    with pytest.raises(UserError, match="RUN=.*status.json is damaged"):
        read_story(tmp_path)
