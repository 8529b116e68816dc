"""`resume=RUN_FOLDER`: the stored configuration of a run, with overrides of what may change between two attempts.

A key that is not marked changeable is refused by name, unless `launch.force` names it (or what it lies below) too. A group
(`cluster=SITE`) stands for the keys that its file sets; what the file leaves open stays as it was stored. Keys in which a run counts
(changes.COUNTED), and the shapes of its weights (changes.SHAPES), stay whatever names them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from hydra import compose
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gyre_hpc.config.changes import COUNTED, SHAPES, changes, is_changeable, leaves, nearest_changeable
from gyre_hpc.config.schema import Config
from gyre_hpc.config.stored import open_folder
from gyre_hpc.config.wording import of_command_line, of_value
from gyre_hpc.errors import UserError

_FORCE = "launch.force"
_LIST = "docs/resume.md"
"""Where all that may change is listed."""


def resumed(folder: str, overrides: Sequence[str]) -> Config:
    """The Config stored in `folder` with `overrides` laid over it; `resume` and `paths.run` name the folder. Raises UserError.

    Groups among the overrides are read by Hydra, which must be initialised then.
    """
    run, stored = open_folder(folder, "resume")
    node = OmegaConf.structured(stored)
    for key, value in _changes(overrides):
        _set(node, key, value)
    node.resume = str(run.root)
    node.paths.run = str(run.root)
    config = OmegaConf.to_object(node)
    assert isinstance(config, Config)
    for change in changes(stored, config):
        if change.key in (*COUNTED, *SHAPES):
            raise UserError(change.key, change.after, _fixed(change.key))
    return config


def _set(node: DictConfig, key: str, value: Any) -> None:
    try:
        OmegaConf.update(node, key, value)
    except OmegaConfBaseException as error:
        raise UserError(key, value, of_value(key, value, str(error).splitlines()[0])) from error


def _changes(overrides: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """(key, value) of each override in turn; groups come first, as Hydra has it."""
    parsed = [item for item in _parsed(overrides) if item.key_or_group != "resume" and not item.key_or_group.startswith("hydra")]
    forced = [str(key) for item in parsed if item.key_or_group == _FORCE for key in _listed(item.value())]
    asked: list[tuple[str, Any]] = []
    for item in parsed:
        key = item.key_or_group
        if item.is_delete():
            raise UserError("~" + key, item.value(), "nothing can be taken away on resume; set it to another value")
        value = item.value()
        if isinstance(value, str) and _is_group(key):
            asked[:0] = _of_group(key, value)
        else:
            asked.append((key, value))
    for key, value in asked:
        if not is_changeable(key) and not any(key == known or key.startswith(known + ".") for known in forced):
            raise UserError(key, value, _fixed(key))
        yield key, value


def _fixed(key: str) -> str:
    if key in (*COUNTED, *SHAPES):
        why = "what the run began is numbered by it" if key in COUNTED else "the weights of its checkpoints have that shape"
        return f"cannot change on resume, not by launch.force either: {why}; begin another run"
    near = nearest_changeable(key, (known for known, _ in leaves(Config())))
    what = f"{', '.join(near)}, ...; all in {_LIST}" if near else _LIST
    return f"cannot change on resume: leave it out, or add {_FORCE}=[{key}] to change it all the same (what may change: {what})"


def _parsed(overrides: Sequence[str]) -> list[Override]:
    try:
        return OverridesParser.create().parse_overrides(list(overrides))
    except HydraException as error:
        raise of_command_line(" ".join(str(error).split())) from error


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _is_group(key: str) -> bool:
    """A group of conf/ is named like the part of the Config that it fills; `experiment` is a name there, and no group on resume."""
    return any(item.name == key and isinstance(item.type, type) and is_dataclass(item.type) for item in fields(Config))


def _of_group(group: str, name: str) -> list[tuple[str, Any]]:
    """What the file conf/<group>/<name>.yaml sets, key by key."""
    told = OmegaConf.to_container(compose(f"{group}/{name}"))
    assert isinstance(told, dict)
    return list(_keys(Config, {str(key): value for key, value in told.items()}))


def _keys(cls: type, told: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    inner = {item.name: item.type for item in fields(cls)}
    for name, value in told.items():
        below = inner.get(name)
        if isinstance(below, type) and is_dataclass(below) and isinstance(value, dict):
            yield from _keys(below, value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
