"""gyre compare in 120 columns: what has no room in the table is below it, and nothing is lost."""

import dataclasses
from itertools import chain
from pathlib import Path

import msgspec
import pytest

from gyre_hpc.config.schema import AlgoConfig, Config, TrainerConfig
from gyre_hpc.config.stored import store_config
from gyre_hpc.report.columns import WIDTH, columns, wrapped
from gyre_hpc.report.compare import changes_apart, compare
from gyre_hpc.report.figures import RunFigures, figures, table
from gyre_hpc.report.story import read_story
from gyre_hpc.report.summary import Summary, summarize
from tests.unit.report.made_up_run import make_run

CHANGED = [f"{name} 2.12.1 -> 2.13.0 (attempt {attempt})" for attempt in (2, 3) for name in ("gyre", "python", "torch", "sglang")]


@pytest.fixture
def summary(tmp_path: Path) -> Summary:
    make_run(tmp_path / "one")
    return summarize(read_story(tmp_path / "one"))


def of(root: Path, names: list[str], *configs: Config) -> list[RunFigures]:
    for name, config in zip(names, configs, strict=True):
        store_config(config, make_run(root / name).config)
    return figures([(name, read_story(root / name)) for name in names])


def is_narrow(text: str) -> bool:
    return all(len(line) <= WIDTH for line in text.splitlines())


def test_keys_that_have_no_room_stand_below_the_lines_of_the_runs(tmp_path: Path):
    trainer, algo = TrainerConfig(lr=0.125, timed_tokens_per_s=7.0), AlgoConfig(updates=77, groups_per_batch=55)
    other = dataclasses.replace(Config(), experiment="another_experiment", trainer=trainer, algo=algo)
    shown = table(of(tmp_path, ["first", "second"], Config(), other))
    head, first, second, blank, *below = shown.splitlines()
    assert head.startswith("run ") and first.startswith("first ") and second.startswith("second ")
    assert is_narrow(shown) and not blank
    assert {"experiment", "trainer.lr"} & set(head.split()), "as many as there is room for"
    assert f"algo.groups_per_batch: {Config().algo.groups_per_batch}, 55" in below and f"algo.updates: {Config().algo.updates}, 77" in below


def test_names_that_have_no_room_are_numbers_in_the_table(tmp_path: Path):
    names = [f"{number}_{'x' * 97}" for number in range(2)]
    shown = table(of(tmp_path, names, Config(), dataclasses.replace(Config(), seed=3)))
    head, first, second, blank, *below = shown.splitlines()
    assert [line.split()[0] for line in (head, first, second)] == ["run", "1", "2"]
    assert below == [f"1: {names[0]}", f"2: {names[1]}"] and first.split()[1] == "0" and second.split()[1] == "3"
    assert head.split()[1] == "seed" and is_narrow(shown) and not blank


def test_what_changed_within_runs_is_told_below_and_only_where_they_differ(summary: Summary):
    plain, changed = ("plain", summary), ("changed", msgspec.structs.replace(summary, versions_changed=CHANGED))
    told = changes_apart([plain, changed])
    assert len(told) == 1 and told[0].startswith("versions_changed of changed: gyre 2.12.1") and is_narrow(told[0])
    assert " ".join(told[0].split()).endswith("; ".join(CHANGED))
    assert changes_apart([plain, plain]) == [] == changes_apart([changed, changed])


def test_versions_that_differ_between_runs_are_named_with_their_runs(summary: Summary):
    one, other = (msgspec.structs.replace(summary, versions={"torch": torch, "python": "3.11"}) for torch in ("2.12", "2.13"))
    assert changes_apart([("a", one), ("b", other)]) == ["versions.torch: 2.12 (a), 2.13 (b)"]
    assert changes_apart([("a", one), ("b", summary)])[0] == "versions.torch: 2.12 (a), - (b)"


def test_every_number_of_many_runs_is_shown_in_blocks_that_fit(summary: Summary):
    wide = msgspec.structs.replace(summary, versions={"commit": "0123456789" * 4}, versions_changed=CHANGED)
    named = [(f"experiment/20261130-11050{number}-{number}", msgspec.structs.replace(wide, seed=number)) for number in range(7)]
    shown = compare(named)
    assert is_narrow(shown)
    seeds = [line.split()[1:] for line in shown.splitlines() if line.startswith("seed ")]
    assert len(seeds) > 1 and list(chain(*seeds)) == [str(number) for number in range(7)]
    heads = [line.split() for line in shown.splitlines() if line.startswith(" ") and "…" in line]
    assert [name[-3:] for name in chain(*heads)] == [f"{number}-{number}" for number in range(7)]


def test_columns_are_as_wide_as_they_have_to_be():
    assert columns([["a", "b"], ["long", "1"], ["x", "100"]]) == "a       b\nlong    1\nx     100"
    assert wrapped("a " * 100).splitlines()[1].startswith("    a a")
