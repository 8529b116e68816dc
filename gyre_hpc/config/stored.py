"""config.yaml of a run folder: the composed configuration, written by launch, read by every process.

Its last line is the number of the run folder's format, which is also how a file that was cut short shows. Formats:

    1   no number; everything on one machine, no `launch`, no `replay`
    2   the number; `launch`, `replay`, and an attempt's own record (attempts/<n>/config.yaml, versions.json)
    3   a checkpoint names the groups it consumed as ranges, no longer all executions; the same groups of the configuration

FORMAT rises when something in a run folder would be read wrongly by the one before, or when the absence of a key means something
else than its default of today; OLDER then says what. A key whose default means what its absence meant needs neither.
"""

from dataclasses import fields
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped]  # omegaconf lets its errors rise

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.errors import NoRun, UserError
from gyre_hpc.whole_file import write_whole

FORMAT = 3
"""What this gyre_hpc writes; it reads this one and those in OLDER."""
OLDER: dict[int, dict[str, Any]] = {
    1: {"launch": {"snapshot": False}, "replay": {}},  # it ran from where the code stood
    2: {},
}
"""Format -> top-level fields that it did not have, with what their absence meant."""
_KEY = "format"
_REMEDY = "name the folder of an undamaged run of this version"


def store_config(config: Config, path: Path) -> None:
    """Write by rename, so that a reader never sees half of it."""
    write_whole(path, f"{OmegaConf.to_yaml(OmegaConf.structured(config))}{_KEY}: {FORMAT}\n".encode())


def load_config(path: Path) -> Config:
    """Raises FileNotFoundError when there is none; UserError for one that cannot be read, is damaged, or is of a newer format."""
    return read_config(path)[0]


def open_folder(path: str | Path, field: str = "RUN") -> tuple[RunFolder, Config]:
    """The run in `path`, and what it was told. Raises NoRun, which names `field`; UserError like load_config."""
    folder = RunFolder(Path(path).expanduser().resolve())
    try:
        return folder, load_config(folder.config)
    except FileNotFoundError as error:
        raise NoRun(field, str(path)) from error


def read_config(path: Path) -> tuple[Config, int]:
    """The configuration and the format it was stored in. Raises like load_config."""
    try:
        stored = OmegaConf.load(path)
        number = _completed(stored, path)
        config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Config), stored))
    except NotADirectoryError as error:
        raise FileNotFoundError(str(error)) from error
    except FileNotFoundError:
        raise
    except (OSError, UnicodeError, YAMLError, OmegaConfBaseException) as error:
        reason = " ".join(str(error).split("\n    ")[0].split())
        raise UserError("config.yaml", str(path), f"cannot be read ({reason}); {_REMEDY}") from error
    assert isinstance(config, Config)
    return config, number


def _completed(stored: Any, path: Path) -> int:
    """Take the number out of `stored`, and add what its format left unsaid. Raises UserError."""
    number = stored.pop(_KEY, 1) if isinstance(stored, DictConfig) else 1
    if not isinstance(number, int) or number < 1:
        raise UserError("config.yaml", str(path), f"holds {_KEY} {number!r}, it is damaged; {_REMEDY}")
    if number > FORMAT:
        remedy = f"its format is {number}, this gyre_hpc knows formats up to {FORMAT}; use the newer gyre_hpc that wrote it"
        raise UserError("config.yaml", str(path), remedy)
    unsaid = OLDER.get(number, {})
    for item in fields(Config):
        has_it = isinstance(stored, DictConfig) and item.name in stored
        # The rest would silently be the defaults of today; what only newer formats hold was cut short before its number.
        if has_it == (item.name in unsaid):
            what = "though its format has none" if has_it else "it is damaged"
            raise UserError("config.yaml", str(path), f"holds {'' if has_it else 'no '}{item.name}, {what}; {_REMEDY}")
        if not has_it:
            stored[item.name] = unsaid[item.name]
    return number
