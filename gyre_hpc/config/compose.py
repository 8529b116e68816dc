"""From overrides to a validated Config, outside of Hydra's own command line: for tests, tools, and `resume=`.

Errors are UserError naming field, value and remedy; Hydra's and omegaconf's own are put into that form by `explained`.
"""

import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import fields, is_dataclass
from importlib import resources

from hydra import compose, initialize_config_module
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gyre_hpc.config.resume import resumed
from gyre_hpc.config.schema import Config
from gyre_hpc.config.search_path import register
from gyre_hpc.config.validate import validate
from gyre_hpc.config.wording import meant, of_command_line, of_value
from gyre_hpc.errors import UserError


def compose_config(overrides: Sequence[str] = ()) -> Config:
    """What `python launch.py *overrides` would be told. Raises UserError."""
    register()
    try:
        with initialize_config_module("gyre_hpc.conf", version_base="1.3"):
            return config_from(compose("config", overrides=list(overrides)), overrides)
    except UserError:
        raise
    except (HydraException, OmegaConfBaseException, ValueError) as error:  # hydra raises ValueError for some overrides
        raise explained(error) from error


def config_from(node: DictConfig, overrides: Sequence[str]) -> Config:
    """The Config of a composed node; with `resume`, the one stored in that run folder plus what may change. Raises UserError."""
    known = set(known_keys())
    unknown = {key for key in _keys_of(OmegaConf.to_container(node)) if not _is_known(key, known)}
    if unknown:  # `+key=value` gets past the schema
        key = min(unknown)
        raise UserError(key, OmegaConf.select(node, key), _no_such_key(key))
    config = OmegaConf.to_object(node)
    assert isinstance(config, Config)
    if config.resume:
        config = resumed(config.resume, overrides)
    validate(config)
    return config


def experiments() -> list[str]:
    """Names in conf/experiment as packaged."""
    folder = resources.files("gyre_hpc.conf") / "experiment"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def known_keys(cls: type = Config, prefix: str = "") -> Iterator[str]:
    """Every dotted key of the schema."""
    for item in fields(cls):
        inner = item.type
        if isinstance(inner, type) and is_dataclass(inner):
            yield from known_keys(inner, f"{prefix}{item.name}.")
        else:
            yield prefix + item.name


def explained(error: BaseException) -> UserError:
    """One UserError out of what Hydra or omegaconf says of a bad override or file."""
    text = " ".join(str(error).split())
    cause = str(error.__cause__).splitlines()[0] if isinstance(error.__cause__, OmegaConfBaseException) else ""
    if missing := re.search(r"Could not find '([^']+)/([^'/]+)' Available options in '[^']+': (.*?) Config search path", text):
        return UserError(missing[1], missing[2], f"one of: {', '.join(missing[3].split())}")
    if refused := re.search(r"Could not (override|delete|append)[^']*'([^']+)'", text):
        key, value = refused[2], re.search(rf"\+{re.escape(refused[2])}=([^\s']+)", text)
        if key == "experiment":
            return UserError(key, value[1] if value else "", f"choose with +experiment=NAME, one of: {', '.join(experiments())}")
        remedy = "it is there already: leave the + out" if refused[1] == "append" else _no_such_key(key)
        return UserError(key, value[1] if value else "", remedy)
    if merging := re.search(r"Error merging override ([^=\s]+)=?(\S*)", text):
        key = merging[1].lstrip("+~")
        return UserError(key, merging[2], _no_such_key(key) if "not in" in cause else of_value(key, merging[2], cause))
    return of_command_line(text)


def _keys_of(value: object, prefix: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _keys_of(inner, f"{prefix}.{name}" if prefix else str(name))
    else:
        yield prefix


def _is_known(key: str, known: Container[str]) -> bool:
    """Below a key that holds a mapping (harness.environment) everybody names their own."""
    while key and key not in known:
        key = key.rpartition(".")[0]
    return bool(key)


def _no_such_key(key: str) -> str:
    if _is_known(key, tuple(known_keys())):
        return "there is nothing of that name to take away"
    groups = [item.name for item in fields(Config) if isinstance(item.type, type) and is_dataclass(item.type)]
    close = meant(key, [*groups, *known_keys()])
    return "no such key" + (f"; did you mean {' or '.join(close)}?" if close else "") + " (all keys: launch.py --cfg job)"
