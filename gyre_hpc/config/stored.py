"""config.yaml of a run folder: the composed configuration, written once by launch, read by every process."""

from dataclasses import fields
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped]  # omegaconf lets its errors rise

from gyre_hpc.config.schema import Config
from gyre_hpc.errors import UserError
from gyre_hpc.whole_file import write_whole

_REMEDY = "name the folder of an undamaged run of this version"


def store_config(config: Config, path: Path) -> None:
    """Write by rename, so that a reader never sees half of it."""
    write_whole(path, OmegaConf.to_yaml(OmegaConf.structured(config)).encode())


def load_config(path: Path) -> Config:
    """Raises FileNotFoundError when there is none; UserError for one that cannot be read, is damaged, or is of another version."""
    try:
        stored = OmegaConf.load(path)
        # The rest would silently be the defaults of today.
        missing = [item.name for item in fields(Config) if not isinstance(stored, DictConfig) or item.name not in stored]
        if missing:
            raise UserError("config.yaml", str(path), f"holds no {missing[0]}, it is damaged or of another version; {_REMEDY}")
        config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Config), stored))
    except NotADirectoryError as error:
        raise FileNotFoundError(str(error)) from error
    except FileNotFoundError:
        raise
    except (OSError, UnicodeError, YAMLError, OmegaConfBaseException) as error:
        reason = " ".join(str(error).split("\n    ")[0].split())
        raise UserError("config.yaml", str(path), f"cannot be read ({reason}); {_REMEDY}") from error
    assert isinstance(config, Config)
    return config
