"""The folder of a run on this node goes with the run."""

import contextlib
from collections.abc import Callable

from gyre_hpc.config.place import scratch_folder
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.errors import UserError
from gyre_hpc.machines.supervision import SUPERSEDED
from gyre_hpc.runner.workspaces import remove_tree


def remove_scratch(config: Config, folder: RunFolder, code: int, *, is_newest: Callable[[], bool], node: str = "") -> None:
    """Once nothing of an attempt runs on this node, which ended with `code`. It stays where a newer one may work in it. `node`: as of
    scratch_folder."""
    if config.debug.keep_workspaces or code == SUPERSEDED:
        return
    with contextlib.suppress(OSError, UserError):  # what is left is in a temporary folder of this user
        if is_newest():
            remove_tree(scratch_folder(config, folder, node))
