"""The door of `launch.py`: Hydra's command line around a task that takes a validated Config and returns an exit code.

Exit codes: 2 for bad input, with one message and no traceback (HYDRA_FULL_ERROR=1 shows it); else the task's own, the largest one in
a multirun. Errors of the task itself rise as they are.
"""

import os
import sys
from collections.abc import Callable
from typing import NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from gyre_hpc.config.compose import config_from, explained
from gyre_hpc.config.schema import Config
from gyre_hpc.config.search_path import PACKAGE, register
from gyre_hpc.errors import UserError

_FULL = "HYDRA_FULL_ERROR"
_STOPPED = 130
"""Exit code after Ctrl-C, as shells have it."""


def hydra_main(task: Callable[[Config], int]) -> Callable[[], NoReturn]:
    """Make `task` the main function of a Hydra program."""

    def run() -> NoReturn:
        codes: list[int] = []
        bugs: list[BaseException] = []
        wants_traceback = os.environ.get(_FULL) == "1"

        def composed(node: DictConfig) -> None:
            try:
                codes.append(task(config_from(node, HydraConfig.get().overrides.task)))
            except UserError as error:
                if wants_traceback:
                    raise
                codes.append(_say(error))
            except BaseException as bug:
                bugs.append(bug)
                raise

        register()
        # Hydra would print and exit with 1 by itself; with its own switch set it lets errors rise to us.
        os.environ[_FULL] = "1"
        try:
            hydra.main(version_base="1.3", config_path=PACKAGE, config_name="config")(composed)()
        except (HydraException, OmegaConfBaseException, ValueError) as error:
            if wants_traceback or bugs:
                raise
            codes.append(_say(explained(error)))
        except KeyboardInterrupt:
            # While composing: nothing was started. A run that was started handles the signal itself.
            sys.exit(_STOPPED)
        sys.exit(max(codes, default=0))

    return run


def overrides_given() -> tuple[str, ...]:
    """What the command line of this Hydra program said; empty outside of one."""
    return tuple(HydraConfig.get().overrides.task) if HydraConfig.initialized() else ()


def _say(error: UserError) -> int:
    print(error, file=sys.stderr)
    return 2
