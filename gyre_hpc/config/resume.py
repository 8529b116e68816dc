"""`resume=RUN_FOLDER`: the stored configuration of a run, with overrides of what may change between two attempts.

What decides the numbers of a run (model, algorithm, tasks, sampling, staleness) stays; where and how fast it runs may change.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.config.stored import load_config
from gyre_hpc.errors import UserError

CHANGEABLE = (
    "algo.updates",
    "checkpoint.*",
    "cluster.*",
    "debug.*",
    "engine.kv_tokens",
    "engine.max_batch",
    "engine.prefill_chunk",
    "engine.sglang.*_s",
    "engine.sglang.device",
    "engine.sglang.environ*",
    "engine.sglang.flags*",
    "engine.sglang.kv",
    "engine.sglang.launcher",
    "engine.sglang.storage*",
    "engine.sglang.stream_tokens",
    "engine.sglang.weights",
    "evaluation.after",
    "gateway.*",
    "journal.*",
    "launch.*",
    "network.*",
    "paths.cache",
    "paths.scratch",
    "sandbox.kind",
    "scheduler.concurrency_half",
    "scheduler.dwell_s",
    "scheduler.lead_factor",
    "scheduler.lead_floor_s",
    "scheduler.split",
    "scheduler.theta0",
    "tracker.*",
    "trainer.memory_limit_mb",
    "trainer.micro_batch_tokens",
    "transport.chunk_bytes",
    "transport.deadline_s",
    "transport.kv",
    "transport.kv_*",
)
"""Patterns of keys that an attempt may set anew."""


def resumed(folder: str, overrides: Sequence[str]) -> Config:
    """The Config stored in `folder` with `overrides` laid over it; `resume` and `paths.run` name the folder. Raises UserError."""
    root = Path(folder).expanduser().resolve()
    try:
        stored = load_config(RunFolder(root).config)
    except FileNotFoundError as error:
        raise UserError("resume", folder, "name a run folder, one that holds config.yaml") from error
    node = OmegaConf.structured(stored)
    for key, value in _changes(overrides):
        try:
            OmegaConf.update(node, key, value)
        except OmegaConfBaseException as error:
            raise UserError(key, value, str(error).splitlines()[0]) from error
    node.resume = str(root)
    node.paths.run = str(root)
    config = OmegaConf.to_object(node)
    assert isinstance(config, Config)
    return config


def _changes(overrides: Sequence[str]) -> list[tuple[str, Any]]:
    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
    except HydraException as error:
        raise UserError("command line", " ".join(overrides), " ".join(str(error).split())) from error
    changes = []
    for item in parsed:
        key = item.key_or_group
        if key == "resume" or key.startswith("hydra"):
            continue
        if not any(fnmatchcase(key, pattern) for pattern in CHANGEABLE):
            raise UserError(key, item.value(), f"cannot change on resume; leave it out (changeable: {', '.join(CHANGEABLE)})")
        changes.append((key, item.value()))
    return changes
