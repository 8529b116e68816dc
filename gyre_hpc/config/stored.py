"""config.yaml of a run folder: the composed configuration, written once by launch, read by every process."""

import os
from pathlib import Path

from omegaconf import OmegaConf

from gyre_hpc.config.schema import Config


def store_config(config: Config, path: Path) -> None:
    """Write by rename, so that a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(path.name + ".tmp")
    aside.write_text(OmegaConf.to_yaml(OmegaConf.structured(config)))
    os.replace(aside, path)


def load_config(path: Path) -> Config:
    """Raises FileNotFoundError, or omegaconf's error naming the key that is unknown or of the wrong type."""
    merged = OmegaConf.merge(OmegaConf.structured(Config), OmegaConf.load(path))
    config = OmegaConf.to_object(merged)
    assert isinstance(config, Config)
    return config
