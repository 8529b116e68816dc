"""Where Hydra looks for configuration: first conf/ where the user stands, then the package gyre_hpc.conf, then the typed schema.

`register` may be called any number of times in a process.
"""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import get_origin

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf

from gyre_hpc.config.schema import Config

PACKAGE = "pkg://gyre_hpc.conf"


class StandingHere(SearchPathPlugin):
    """Puts ./conf before the packaged groups, so that a file there with the same name wins."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        here = Path.cwd() / "conf"
        if here.is_dir():
            search_path.prepend(provider="here", path=f"file://{here}")


def register() -> None:
    """Make the schema and the search path known to Hydra in this process."""
    ConfigStore.instance().store(name="schema", node=_schema())
    plugins = Plugins.instance()
    if StandingHere not in plugins.discover(SearchPathPlugin):
        plugins.register(StandingHere)


@cache
def _schema() -> DictConfig:
    """The typed schema. Below a mapping everybody names their own: there Hydra asks for no `+` before a new name."""
    node = OmegaConf.structured(Config)
    for key in _mappings(Config):
        OmegaConf.set_struct(OmegaConf.select(node, key), False)
    assert isinstance(node, DictConfig)
    return node


def _mappings(cls: type, prefix: str = "") -> Iterator[str]:
    """Dotted keys of the mappings below `cls`."""
    for item in fields(cls):
        if isinstance(item.type, type) and is_dataclass(item.type):
            yield from _mappings(item.type, f"{prefix}{item.name}.")
        elif get_origin(item.type) is dict:
            yield prefix + item.name
