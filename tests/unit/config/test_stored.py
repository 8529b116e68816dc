"""config.yaml of a run folder is whole and of this version, or refused with what is wrong and what to do."""

from dataclasses import fields
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from gyre_hpc.config.resume import resumed
from gyre_hpc.config.schema import Config
from gyre_hpc.config.stored import FORMAT, OLDER, load_config, read_config, store_config
from gyre_hpc.errors import UserError
from gyre_hpc.report.story import read_story

FIXTURES = Path(__file__).parents[2] / "fixtures"


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


def test_a_file_tells_its_format_in_its_last_line(tmp_path: Path):
    store_config(Config(), tmp_path / "config.yaml")
    assert (tmp_path / "config.yaml").read_text().splitlines()[-1] == f"format: {FORMAT}"
    assert read_config(tmp_path / "config.yaml") == (Config(), FORMAT)


def test_wherever_a_file_is_cut_short_it_is_never_taken_for_an_older_one(tmp_path: Path):
    path = tmp_path / "config.yaml"
    store_config(Config(), path)
    whole = path.read_bytes()
    for length in range(0, len(whole) - len(f"format: {FORMAT}\n"), 61):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match="undamaged run"):
            load_config(path)


def test_a_newer_format_is_refused_with_both_numbers(tmp_path: Path):
    path = tmp_path / "config.yaml"
    store_config(Config(), path)
    path.write_text(path.read_text().replace(f"format: {FORMAT}", f"nosuch: 1\nformat: {FORMAT + 7}"))
    with pytest.raises(UserError, match=rf"its format is {FORMAT + 7}, this gyre_hpc knows formats up to {FORMAT};"):
        load_config(path)


@pytest.mark.parametrize("number", ["0", "-1", "two", "1.5"])
def test_a_format_that_is_no_number_of_one_is_damage(tmp_path: Path, number: str):
    path = tmp_path / "config.yaml"
    store_config(Config(), path)
    path.write_text(path.read_text().replace(f"format: {FORMAT}", f"format: {number}"))
    with pytest.raises(UserError, match="it is damaged"):
        load_config(path)


def test_every_part_of_the_configuration_is_in_each_format_or_its_absence_has_a_meaning():
    """A new group of the configuration: say in OLDER what its absence meant in each format before."""
    stored = OmegaConf.load(FIXTURES / "run_of_format_1" / "config.yaml")
    assert {item.name for item in fields(Config)} == {*stored, *OLDER[1]} and set(OLDER) == set(range(1, FORMAT))


def test_a_run_of_the_previous_format_is_read_as_it_was_meant(tmp_path: Path):
    config, number = read_config(FIXTURES / "run_of_format_1" / "config.yaml")
    assert number == 1 and config.algo.updates == 2 and config.cluster.cells == 2
    assert not config.launch.snapshot, "it ran from where the code stood"
    store_config(config, tmp_path / "config.yaml")
    assert read_config(tmp_path / "config.yaml") == (config, FORMAT)


def test_a_run_whose_checkpoints_name_every_execution_is_read_like_one_of_today(tmp_path: Path):
    path = tmp_path / "config.yaml"
    store_config(Config(), path)
    path.write_text(path.read_text().replace(f"format: {FORMAT}", "format: 2"))
    assert read_config(path) == (Config(), 2)


@pytest.mark.parametrize("lost", ["debug", "seed"])
def test_a_damaged_run_of_the_previous_format_is_told_from_a_whole_one(tmp_path: Path, lost: str):
    stored = OmegaConf.load(FIXTURES / "run_of_format_1" / "config.yaml")
    assert isinstance(stored, DictConfig)
    del stored[lost]
    (tmp_path / "config.yaml").write_text(OmegaConf.to_yaml(stored))
    with pytest.raises(UserError, match=f"holds no {lost}, it is damaged"):
        load_config(tmp_path / "config.yaml")
