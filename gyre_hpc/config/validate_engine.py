"""What an engine of each kind cannot do, and what it needs of the rest. Same form as in validate.py: (field, value, remedy)."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gyre_hpc.config.engine_schema import Device, EngineKind, SGLangKV
from gyre_hpc.config.schema import Config

Breach = tuple[str, Any, str]

DTYPES = ("auto", "float32", "bfloat16", "float16")
_FLAG = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def tensor_parallel(config: Config) -> Iterator[Breach]:
    """The ranks of a cell share the model all together or not at all. A model of a path is looked at when it is read."""
    cluster, model = config.cluster, config.model
    size, ranks = cluster.tensor_parallel, cluster.ranks_per_cell
    if size not in (0, 1, ranks):
        yield "cluster.tensor_parallel", size, f"0 or cluster.ranks_per_cell={ranks} (all ranks share the model), or 1 (each has its own)"
    if ranks == 1 or model.path or config.engine.kind is EngineKind.timed:
        return
    serves_shared = config.engine.kind is EngineKind.sglang  # its server divides the model whatever the trainer does
    if size == 1 and not serves_shared:
        return
    for name in ("num_heads", "num_kv_heads", "intermediate_size"):
        value = getattr(model, name)
        if value % ranks == 0 or (size == 1 and name == "num_kv_heads" and ranks % value == 0):
            continue
        other = "choose another cluster.ranks_per_cell" if serves_shared else "set cluster.tensor_parallel=1"
        yield f"model.{name}", value, f"must be a multiple of the cluster.ranks_per_cell={ranks} ranks that share a model; or {other}"


def deterministic(config: Config) -> Iterator[Breach]:
    """What would let a call's tokens depend on more than its context and its sampling key."""
    engine, cluster = config.engine, config.cluster
    if not engine.deterministic:
        return
    if engine.kind is EngineKind.timed:
        yield "engine.deterministic", True, "engine=embedded computes in steps of one shape, and engine=sglang on GPUs"
    if engine.kind is EngineKind.sglang and engine.sglang.device is Device.cpu:
        yield "engine.deterministic", True, "SGLang has this mode on GPUs alone: engine.sglang.device=cuda, or false"
    if engine.keep_kv:
        yield "engine.keep_kv", True, "which calls attend to KV of older weights is a matter of time: false with engine.deterministic=true"
    if engine.kind is EngineKind.embedded and cluster.ranks_per_cell > 1 and cluster.tensor_parallel != 1:
        yield "cluster.tensor_parallel", cluster.tensor_parallel, "one rank computes the whole model: 1 with engine.deterministic=true"


def sglang(config: Config) -> Iterator[Breach]:
    """A cell that serves with SGLang. A value that can never be is refused also where another engine serves: it is a slip of somebody."""
    yield from _start(config)
    given = config.engine.sglang
    for name in ("stream_tokens", "start_deadline_s", "update_deadline_s", "orphan_s"):
        if not getattr(given, name) > 0:
            yield f"engine.sglang.{name}", getattr(given, name), "must be greater than 0"
    if config.engine.kind is not EngineKind.sglang:
        return
    yield from _sampling(config)
    if given.kv is not SGLangKV.none and config.engine.keep_kv:
        yield "engine.keep_kv", True, f"how old KV is does not travel with it: false with engine.sglang.kv={given.kv.value}"
    if given.kv is SGLangKV.shared and not given.storage:
        yield "engine.sglang.storage", "", "name HiCache's storage backend, e.g. mooncake or file; or engine.sglang.kv=none"
    if given.kv is SGLangKV.pd and config.cluster.cells % 2:
        yield "cluster.cells", config.cluster.cells, "engine.sglang.kv=pd takes cells in pairs: an even number, or engine.sglang.kv=none"


def _sampling(config: Config) -> Iterator[Breach]:
    """Its log-probs are those of the whole distribution, also when it draws from a part of it; the trainer's are of that part."""
    remedy = "engine=sglang does not renormalise its log-probs"
    if config.algo.top_p < 1:
        yield "algo.top_p", config.algo.top_p, f"{remedy}: 1 with it, or engine=embedded"
    if config.algo.top_k > 0:
        yield "algo.top_k", config.algo.top_k, f"{remedy}: 0 with it, or engine=embedded"


def _start(config: Config) -> Iterator[Breach]:
    """What its server is started with."""
    given = config.engine.sglang
    if given.dtype not in DTYPES:
        yield "engine.sglang.dtype", given.dtype, f"one of {', '.join(DTYPES)}"
    for name, value in given.flags.items():
        key = f"engine.sglang.flags.{name}"
        if _FLAG.fullmatch(str(name)) is None:
            yield key, value, "write a flag as SGLang has it, without the leading dashes: mem-fraction-static"
        elif not _is_flag_value(value):
            yield key, value, "true (a flag without a value), a number, a text, or a list of these"
    for name, value in given.environ.items():
        if _VARIABLE.fullmatch(str(name)) is None:
            yield f"engine.sglang.environ.{name}", value, "is no name of an environment variable"


def _is_flag_value(value: object) -> bool:
    """A mapping is written as JSON by whoever starts the server: SGLang has flags of that kind."""
    if isinstance(value, list):
        return all(isinstance(one, int | float | str) for one in value)
    return isinstance(value, bool | int | float | str | Mapping)
