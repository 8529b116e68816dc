"""Where Hydra looks for configuration: first conf/ where the user stands, then the package gyre_hpc.conf, then the typed schema.

`register` may be called any number of times in a process.
"""

from pathlib import Path

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin

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
    ConfigStore.instance().store(name="schema", node=Config)
    plugins = Plugins.instance()
    if StandingHere not in plugins.discover(SearchPathPlugin):
        plugins.register(StandingHere)
