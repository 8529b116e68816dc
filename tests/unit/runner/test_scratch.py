"""The scratch folder of a run goes with its attempt, and never with one that is not the newest."""

import dataclasses
from pathlib import Path

import pytest

from gyre_hpc.config.place import scratch_folder
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config, DebugConfig, PathsConfig
from gyre_hpc.machines.supervision import STOPPED, SUPERSEDED
from gyre_hpc.runner.scratch import remove_scratch
from gyre_hpc.runner.workspaces import Workspaces


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    (tmp_path / "run").mkdir()
    return RunFolder(tmp_path / "run")


def config_at(root: Path) -> Config:
    return Config(paths=PathsConfig(scratch=str(root / "s")))


@pytest.mark.parametrize("code", [0, 1, STOPPED])
@pytest.mark.parametrize("node", ["", "1"])
def test_it_goes_with_what_is_in_it_and_that_of_another_node_stays(run: RunFolder, tmp_path: Path, code: int, node: str):
    config = config_at(tmp_path)
    own, other = scratch_folder(config, run, node), scratch_folder(config, run, "2")
    (own / "runner-0-2" / "train-0-0-0").mkdir(parents=True)
    remove_scratch(config, run, code, is_newest=lambda: True, node=node)
    assert not own.exists() and other.exists()


def test_it_stays_where_a_newer_attempt_may_work_or_it_shall_be_kept(run: RunFolder, tmp_path: Path):
    config = config_at(tmp_path)
    scratch = scratch_folder(config, run)
    remove_scratch(config, run, STOPPED, is_newest=lambda: False)
    remove_scratch(config, run, SUPERSEDED, is_newest=lambda: True)
    remove_scratch(dataclasses.replace(config, debug=DebugConfig(keep_workspaces=True)), run, 0, is_newest=lambda: True)
    assert scratch.exists()


def test_what_a_killed_attempt_left_is_gone_once_the_next_one_on_the_node_is_over(run: RunFolder, tmp_path: Path):
    config = config_at(tmp_path)
    left = scratch_folder(config, run) / "runner-0-1" / "train-0-0-0"
    left.mkdir(parents=True)
    Workspaces(scratch_folder(config, run) / "runner-0-2").sweep()
    remove_scratch(config, run, 0, is_newest=lambda: True)
    assert not scratch_folder(config, run).joinpath("runner-0-1").exists()
