"""A sweep (`launch.py -m key=a,b`): one run for each combination, in a folder named by what that run alone was told, all of them below
one sweep folder (hydra.sweep.dir), so that a sweep is compared, and gone on with, as a whole.

Hydra's basic launcher goes from one combination to the next; on SLURM each is submitted by us and not waited for. Its launchers that
submit by themselves would start launch.py on a compute node, where nobody may submit, so they are refused by name.
"""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.types import RunMode
from omegaconf import OmegaConf

from gyre_hpc.config.schema import Config
from gyre_hpc.errors import UserError

_LAUNCHER = "hydra/launcher"
_BASIC = "hydra._internal.core_plugins.basic_launcher.BasicLauncher"
_LONGEST = 100
"""Characters of a run's name."""


def is_sweep() -> bool:
    """Whether this process composes the runs of a sweep."""
    return HydraConfig.initialized() and HydraConfig.get().mode is RunMode.MULTIRUN


def sweep_folder() -> Path:
    return Path(str(HydraConfig.get().sweep.dir)).absolute()


def refuse_launchers(argv: Sequence[str]) -> None:
    """Of the command line, before Hydra looks for one. Raises UserError."""
    for word in argv:
        key, _, value = word.lstrip("+").partition("=")
        if key == _LAUNCHER and value != "basic":
            raise _refused(value)


def placed(config: Config) -> Config:
    """A run of a sweep: with its folder below the sweep's; one that is resumed stays where it is. Raises UserError."""
    target = str(HydraConfig.get().launcher._target_)
    if target != _BASIC:  # a file of the user's chose it
        raise _refused(target)
    swept = _swept_keys()
    if config.resume or "paths.run" in swept:
        return config
    if config.paths.run:
        remedy = (
            f"a sweep names its run folders itself: leave it out (they are in {sweep_folder()}; hydra.sweep.dir=FOLDER chooses another)"
        )
        raise UserError("paths.run", config.paths.run, remedy)
    return dataclasses.replace(config, paths=dataclasses.replace(config.paths, run=str(sweep_folder() / run_name())))


def run_name() -> str:
    """`<number>_<key>-<value>_…` of the keys that the sweep varies: no character that a shell or Hydra takes for its own."""
    told = {item.key_or_group: item for item in _parsed(list(HydraConfig.get().overrides.task))}
    parts = [f"{key}-{told[key].get_value_element_as_str()}" for key in _swept_keys() if key in told]
    return re.sub(r"[^\w.+-]+", "-", "_".join([str(HydraConfig.get().job.num), *parts]))[:_LONGEST]


def _swept_keys() -> list[str]:
    """In the order of the command line; what only a sweeper's own configuration names comes first, as Hydra has it."""
    params = HydraConfig.get().sweeper.get("params") or {}
    told = OmegaConf.load(sweep_folder() / "multirun.yaml").hydra.overrides.task
    words = [*(f"{key}={value}" for key, value in params.items()), *told]
    return list(dict.fromkeys(item.key_or_group for item in _parsed(words) if item.is_sweep_override()))


def _parsed(words: Sequence[str]) -> list[Override]:
    return OverridesParser.create().parse_overrides(list(words))


def _refused(launcher: str) -> UserError:
    return UserError(
        _LAUNCHER,
        launcher,
        "leave it out: with cluster.kind=slurm launch.py itself submits a job for each run of a sweep, and does not wait",
    )
