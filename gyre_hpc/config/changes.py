"""What may change between two attempts of a run, and what did change.

What decides the numbers of a run (model, algorithm, tasks, sampling, staleness) stays; where and how fast it runs may change.
"""

import difflib
import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from fnmatch import fnmatchcase
from typing import Any

from gyre_hpc.config.schema import Config

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
    "replay.*",
    "sandbox.kind",
    "scheduler.concurrency_half",
    "scheduler.dwell_s",
    "scheduler.lead_factor",
    "scheduler.lead_floor_s",
    "scheduler.split",
    "scheduler.theta0",
    "suite.fruitless_window",
    "tracker.*",
    "trainer.memory_limit_mb",
    "trainer.micro_batch_tokens",
    "transport.chunk_bytes",
    "transport.deadline_s",
    "transport.kv",
    "transport.kv_*",
)
"""Patterns of keys that an attempt may set anew; docs/resume.md lists them."""
COUNTED = ("algo.groups_per_batch", "algo.group_size")
"""Groups and executions that a run began are named by their numbers, which are counted in these: under other values the names of old
ones would be taken for others, and trained twice. No attempt may set them anew, forced or not."""
SHAPES = ("model.hidden_size", "model.num_layers", "model.num_heads", "model.num_kv_heads", "model.head_dim", "model.intermediate_size")
"""The weights of every checkpoint have these: under others none can be loaded. No attempt may set them anew, forced or not."""
_OF_ONE_START = ("resume", "paths.run", "launch.force")
"""They say how an attempt was asked for, not what it is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One key that an attempt was told anew."""

    key: str
    before: Any
    """Plain JSON; an enum by its name."""
    after: Any
    forced: bool
    """Not marked changeable: the user asked for it by launch.force."""


def is_changeable(key: str) -> bool:
    return any(fnmatchcase(key, pattern) for pattern in CHANGEABLE)


def nearest_changeable(key: str, known: Iterable[str]) -> list[str]:
    """Up to three of the keys that may change, the likest first: of its own part of the configuration where there are any."""
    may = [other for other in known if is_changeable(other)]
    beside = [other for other in may if other.rpartition(".")[0] == key.rpartition(".")[0] != ""]
    return difflib.get_close_matches(key, beside or may, n=3, cutoff=0.0 if beside else 0.6)


def changes(before: Config, after: Config) -> tuple[Change, ...]:
    """Keys with another value, in the order of the schema."""
    told = dict(leaves(after))
    return tuple(
        Change(key=key, before=plain(value), after=plain(told[key]), forced=not is_changeable(key))
        for key, value in leaves(before)
        if told[key] != value and key not in _OF_ONE_START
    )


def leaves(config: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of a Config; a field that holds a mapping of people's own names is one value."""
    for item in fields(config):
        value = getattr(config, item.name)
        if is_dataclass(value):
            yield from leaves(value, f"{prefix}{item.name}.")
        else:
            yield prefix + item.name, value


def plain(value: Any) -> Any:
    """As JSON has it: an enum by its name."""
    return value.name if isinstance(value, enum.Enum) else value
