"""The door of `launch.py`: Hydra's command line around a task that takes a validated Config and returns an exit code.

Exit codes: 2 for bad input, with one message and no traceback (HYDRA_FULL_ERROR=1 shows it); else the task's own, the largest one in
a multirun. Errors of the task itself rise as they are.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from gyre_hpc.config.compose import config_from, explained
from gyre_hpc.config.schema import ClusterKind, Config
from gyre_hpc.config.search_path import PACKAGE, register
from gyre_hpc.config.sweep import is_sweep, placed, refuse_launchers, run_name, sweep_folder
from gyre_hpc.errors import UserError
from gyre_hpc.telling import fall_silent

_FULL = "HYDRA_FULL_ERROR"
_STOPPED = 130
"""Exit code after Ctrl-C, as shells have it."""
_NOT_BEGUN = 3
"""Exit code of a run of a sweep that was stopped before it."""


def hydra_main(task: Callable[[Config], int], more: Callable[[UserError], str] = lambda error: "") -> Callable[[], NoReturn]:
    """Make `task` the main function of a Hydra program. more: what goes on with the message of bad input."""

    def run() -> NoReturn:
        ends = _Ends()
        bugs: list[BaseException] = []
        wants_traceback = os.environ.get(_FULL) == "1"

        def composed(node: DictConfig) -> None:
            name = ""
            if is_sweep():
                ends.sweep, name = sweep_folder(), run_name()
                if ends.was_stopped:  # Ctrl-C is meant for the whole sweep
                    ends.add(name, _NOT_BEGUN)
                    return
            try:
                config = config_from(node, HydraConfig.get().overrides.task)
                if is_sweep():
                    config = placed(config)
                    ends.are_submitted = config.cluster.kind is ClusterKind.slurm and not config.launch.wait
                ends.add(name, task(config))
            except UserError as error:
                if wants_traceback:
                    raise
                ends.add(name, _say(error, more))
            except BaseException as bug:
                ends.add(name, 1)
                bugs.append(bug)
                raise

        register()
        # Hydra would print and exit with 1 by itself; with its own switch set it lets errors rise to us.
        os.environ[_FULL] = "1"
        try:
            refuse_launchers(sys.argv[1:])
            hydra.main(version_base="1.3", config_path=PACKAGE, config_name="config")(composed)()
        except UserError as error:
            ends.add("", _say(error, more))
        except (HydraException, OmegaConfBaseException, ValueError) as error:
            if wants_traceback or bugs:
                raise
            ends.add("", _say(explained(error), more))
        except BrokenPipeError:  # `--help | head`: a task that was started bears that itself
            if bugs:
                raise
            fall_silent()
        except KeyboardInterrupt:
            # While composing: nothing was started. A run that was started handles the signal itself.
            sys.exit(_STOPPED)
        finally:
            ends.tell()
        sys.exit(max(ends.codes, default=0))

    return run


class _Ends:
    """How each run of this program ended; one, but for a sweep."""

    def __init__(self) -> None:
        self.sweep: Path | None = None
        """Its folder."""
        self.are_submitted = False
        """Its runs are jobs that nobody waits for: how they end is not known here."""
        self._ends: list[tuple[str, int]] = []

    def add(self, name: str, code: int) -> None:
        self._ends.append((name, code))

    @property
    def codes(self) -> list[int]:
        return [code for _, code in self._ends]

    @property
    def was_stopped(self) -> bool:
        return _STOPPED in self.codes

    def tell(self) -> None:
        """The last line of a sweep: a run that failed did not stop the others, so it is named here."""
        if self.sweep is None:
            return
        failed = [f"{name} ({'not begun' if code == _NOT_BEGUN else f'exit code {code}'})" for name, code in self._ends if code]
        what = f"{len(failed)} failed: {', '.join(failed)}" if failed else "each submitted" if self.are_submitted else "none failed"
        print(
            f"sweep of {len(self._ends)} runs, {what}; side by side: gyre compare {self.sweep}", file=sys.stderr if failed else sys.stdout
        )


def overrides_given() -> tuple[str, ...]:
    """What the command line of this Hydra program said; empty outside of one."""
    return tuple(HydraConfig.get().overrides.task) if HydraConfig.initialized() else ()


def _say(error: UserError, more: Callable[[UserError], str]) -> int:
    print(f"{error}{more(error)}", file=sys.stderr)
    return 2
