"""Each attempt leaves a record of what it ran with and of what it was told anew; people see where attempts differ."""

import dataclasses
import json
import sys
from pathlib import Path

import msgspec
import pytest

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config, PathsConfig
from gyre_hpc.config.stored import FORMAT, load_config, store_config
from gyre_hpc.launch.folder import prepare
from gyre_hpc.launch.versions import driver_version, installed_version, record_attempt, sources_digest, versions_here
from gyre_hpc.observability.attempt_record import VERSIONS, AttemptRecord, notes_on_attempts, read_records
from gyre_hpc.observability.events import read_events
from gyre_hpc.report.compare import compare
from gyre_hpc.report.story import read_story
from gyre_hpc.report.summary import summarize


def claimed(root: Path, attempt: int, config: Config) -> RunFolder:
    folder = RunFolder(root)
    store_config(config, folder.config)
    (folder.attempts / str(attempt)).mkdir(parents=True)
    return folder


def test_every_version_is_told_without_importing_torch():
    told = versions_here(Config())
    assert set(told) == set(VERSIONS) and told["format"] == str(FORMAT) and told["torch"] == installed_version("torch") != ""
    assert told["python"].split(".")[:2] == [str(part) for part in sys.version_info[:2]] and told["sglang"] == ""
    assert installed_version("no-such-package-of-anybody") == ""


def test_the_digest_of_the_sources_is_that_of_their_content(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    before = sources_digest()
    assert before == sources_digest() and len(before) == 16
    for package in ("gyre_hpc", "gyre_hpc.conf"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "one.py").write_text("1")
    monkeypatch.setattr("gyre_hpc.launch.versions.resources.files", lambda package: tmp_path / package)
    digests = [sources_digest()]
    (tmp_path / "gyre_hpc.conf" / "one.py").write_text("2")
    digests.append(sources_digest())
    (tmp_path / "gyre_hpc.conf" / "one.py").rename(tmp_path / "gyre_hpc.conf" / "two.py")
    assert len({before, *digests, sources_digest()}) == 4


def test_the_driver_is_what_its_file_says(tmp_path: Path):
    said = tmp_path / "version"
    said.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan 23 2025\nGCC version:  gcc version 12.2.0\n")
    assert driver_version(said) == "570.86.15"
    assert driver_version(tmp_path / "none") == ""


def test_an_attempt_is_recorded_with_what_it_was_told_anew(tmp_path: Path):
    folder = claimed(tmp_path, 1, Config())
    assert record_attempt(folder, 1, ["seed=0"]).changes == ()
    other = dataclasses.replace(Config(), seed=4, cluster=dataclasses.replace(Config().cluster, cells=3))
    claimed(tmp_path, 3, other)  # the second one came to nothing
    record_attempt(folder, 3)
    first, third = read_records(folder)
    assert (first.attempt, first.overrides, third.attempt) == (1, ("seed=0",), 3)
    assert [(change.key, change.before, change.after, change.forced) for change in third.changes] == [
        ("seed", 0, 4, True),
        ("cluster.cells", 4, 3, False),
    ]
    noted = [event for event in read_events(folder.events_folder) if event.kind == "told_anew"]
    assert [(event.attempt, event.fields["key"], event.fields["forced"]) for event in noted] == [
        (3, "seed", True),
        (3, "cluster.cells", False),
    ]
    assert record_attempt(folder, 3) == third
    assert len(read_events(folder.events_folder)) == 2, "a second call notes nothing"


def test_a_run_tells_where_its_attempts_differ(tmp_path: Path):
    folder = claimed(tmp_path, 1, Config())
    record_attempt(folder, 1)
    assert notes_on_attempts(folder) == []
    path = folder.versions(1)
    path.write_text(path.read_text().replace(f'"torch": "{installed_version("torch")}"', '"torch": "2.0.1"'))
    claimed(tmp_path, 2, dataclasses.replace(Config(), seed=4))
    record_attempt(folder, 2)
    lines = [
        f"attempts ran with different versions: torch 2.0.1 -> {installed_version('torch')} (attempt 2)",
        "told anew: seed 0 -> 4 (attempt 2, forced)",
    ]
    assert notes_on_attempts(folder) == lines
    summary = summarize(read_story(tmp_path))
    assert lines[0].endswith(summary.versions_changed[0]) and lines[1].endswith(summary.told_anew[0])
    assert summary.versions["torch"] == installed_version("torch") and "2.0.1 ->" in compare([("run", summary)])


def test_a_damaged_record_says_nothing_and_stops_nothing(tmp_path: Path):
    folder = claimed(tmp_path, 1, Config())
    record_attempt(folder, 1)
    (folder.attempts / "2").mkdir()
    folder.versions(2).write_text("{")
    assert [record.attempt for record in read_records(folder)] == [1]


def test_launch_records_each_attempt_and_stores_no_force(tmp_path: Path):
    config = Config(paths=PathsConfig(run=str(tmp_path / "run")))
    folder = prepare(config, 0.0).folder
    folder.config_of(1).unlink()  # as runs of format 1 are
    forced = dataclasses.replace(config, resume=str(folder.root), seed=9, launch=dataclasses.replace(config.launch, force=["seed"]))
    assert prepare(forced, 0.0).attempt == 2
    assert load_config(folder.config).launch.force == [] and load_config(folder.config_of(1)).seed == 0
    record = msgspec.json.decode(folder.versions(2).read_bytes(), type=AttemptRecord)
    assert [(change.key, change.forced) for change in record.changes] == [("seed", True)]
    assert json.loads(folder.versions(1).read_bytes())["versions"]["sources"] == sources_digest()
