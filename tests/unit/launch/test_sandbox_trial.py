"""A folder that a run's sandboxes would not see is refused at the door by its key, with the remedy; nothing is left of the trial."""

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gyre_hpc.config.compose import compose_config
from gyre_hpc.config.schema import Config
from gyre_hpc.errors import UserError
from gyre_hpc.launch.preflight.probe import look
from gyre_hpc.launch.preflight.sandbox_trial import try_sandbox
from gyre_hpc.launch.surroundings import check_surroundings
from gyre_hpc.sandboxes import Bubblewrap

SOMEBODY = 12_345


@pytest.fixture(autouse=True)
def _works(needs: Callable[[str, str], None]) -> None:
    needs("bwrap", Bubblewrap().probe())


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder that sockets below it may have."""
    with tempfile.TemporaryDirectory(prefix="gyre-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def foreign(short: Path) -> Path:
    """Closed to all but somebody else; root alone comes in all the same."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away and still use it")
    folder = short / "theirs"
    folder.mkdir(mode=0o700)
    os.chown(folder, SOMEBODY, SOMEBODY)
    return folder


def config(folder: Path, *more: str) -> Config:
    return compose_config([f"paths.scratch={folder / 's'}", f"paths.cache={folder / 'cache'}", *more])


@pytest.mark.parametrize("kind", ["auto", "bwrap", "none"])
def test_folders_of_this_user_are_let_through_and_nothing_is_left(short: Path, kind: str) -> None:
    asked = config(short, f"sandbox.kind={kind}")
    check_surroundings(asked)
    assert look(asked, 0, short).unseen is None
    assert list((short / "s").iterdir()) == []


@pytest.mark.parametrize("kind", ["auto", "bwrap"])
def test_workspaces_below_a_folder_of_somebody_else_are_refused(short: Path, foreign: Path, kind: str) -> None:
    asked = config(foreign, f"sandbox.kind={kind}")
    with pytest.raises(UserError, match=rf"paths.scratch='{foreign}/s': a sandbox cannot use it here .*Permission denied.*chown"):
        check_surroundings(asked)
    unseen = look(asked, 0, short).unseen
    assert unseen is not None and unseen.field == "paths.scratch"
    assert list((foreign / "s").iterdir()) == []


def test_without_a_sandbox_such_a_folder_will_do(foreign: Path) -> None:
    check_surroundings(config(foreign, "sandbox.kind=none"))


def test_what_a_harness_reads_is_tried_too(short: Path, foreign: Path) -> None:
    program = short / "agent"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    command = (f"harness.command={program}", "warm_start.executions=0", "warm_start.epochs=0", "harness=command")
    unseen = try_sandbox(config(short, *command, f"harness.readable=[{program},{foreign}]"))
    assert unseen is not None and (unseen.field, unseen.path) == ("harness.readable", str(foreign)) and "cannot read" in unseen.error
    assert try_sandbox(config(short, *command, f"harness.readable=[{program}]")) is None
