"""A run that has made what it is asked for is not started again; one that has made more is not asked for less."""

from pathlib import Path

import pytest

from gyre_hpc.config.compose import compose_config
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.stored import store_config
from gyre_hpc.errors import UserError
from gyre_hpc.launch.finished import check_updates
from gyre_hpc.protocol.identity import Version
from gyre_hpc.train.checkpoint_folder import write


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """That has made nine updates."""
    folder = RunFolder(tmp_path)
    store_config(compose_config(), folder.config)
    for version in (Version(0, 9), Version(0, 8)):
        write(folder.checkpoints / str(version), version, {})
    (folder.checkpoints / "0.10").mkdir()  # its writing was cut short
    return folder


@pytest.mark.parametrize("updates", [9, 10, 12])
def test_a_run_may_be_asked_for_as_many_updates_as_it_made_and_for_more(run: RunFolder, updates: int):
    check_updates(compose_config([f"resume={run.root}", f"algo.updates={updates}"]))


def test_fewer_updates_than_are_made_are_refused_with_their_number(run: RunFolder):
    with pytest.raises(UserError, match="algo.updates=8: 9 updates are made already.* for 9 "):
        check_updates(compose_config([f"resume={run.root}", "algo.updates=8"]))


def test_a_run_that_is_new_has_made_none(tmp_path: Path):
    check_updates(compose_config(["algo.updates=1"]))
    store_config(compose_config(), RunFolder(tmp_path).config)
    check_updates(compose_config([f"resume={tmp_path}", "algo.updates=1"]))
