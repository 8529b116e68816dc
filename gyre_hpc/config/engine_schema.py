"""What a run is told of its inference engine: the keys under `engine.` (schema.py puts them into the whole)."""

import enum
from dataclasses import dataclass, field
from typing import Any


class EngineKind(enum.Enum):
    embedded = "embedded"
    sglang = "sglang"
    timed = "timed"


class Device(enum.Enum):
    """Where SGLang computes."""

    auto = "auto"
    """cuda where the machine has an NVIDIA GPU, else cpu."""
    cpu = "cpu"
    cuda = "cuda"


class WeightRoute(enum.Enum):
    """How weights reach SGLang."""

    group = "group"
    """A process group of this cell's leader and its server: gloo; nccl on cuda with environ.NCCL_MULTI_RANK_GPU_ENABLE=1, since the
    two share a GPU."""
    disk = "disk"
    """A Hugging Face folder in scratch."""


class SGLangKV(enum.Enum):
    """What becomes of the KV of calls that leave a cell."""

    none = "none"
    """Computed anew where they go on."""
    pd = "pd"
    """Cells stand in pairs: the even one prefills for the odd one after it (prefill-decode disaggregation)."""
    shared = "shared"
    """HiCache: pages lie in a storage that all servers reach."""


@dataclass(kw_only=True)
class SGLangConfig:
    environment: str = ""
    """Folder of its own Python environment; empty: the one of `gyre engine install sglang` in paths.cache."""
    launcher: str = ""
    """A Python program that starts SGLang in place of `-m sglang.launch_server`, with the same arguments."""
    device: Device = Device.auto
    dtype: str = "auto"
    """float32, bfloat16, float16; auto: bfloat16 on cuda, float32 on cpu."""
    flags: dict[str, Any] = field(default_factory=dict)
    """More flags of its server, e.g. {mem-fraction-static: 0.8, enable-metrics: true}. true: a flag without a value."""
    environ: dict[str, str] = field(default_factory=dict)
    """More environment variables of its server."""
    weights: WeightRoute = WeightRoute.group
    kv: SGLangKV = SGLangKV.none
    storage: str = "mooncake"
    """kv=shared: HiCache's storage backend (file, mooncake, nixl, ...)."""
    storage_config: dict[str, Any] = field(default_factory=dict)
    """kv=shared: what that backend is told."""
    stream_tokens: int = 8
    """Tokens between two pieces of an answer."""
    start_deadline_s: float = 900.0
    """From the start of a server until it answers. It loads no weights from disk, but compiles its kernels once."""
    update_deadline_s: float = 300.0
    """Of one transfer of all weights."""
    orphan_s: float = 60.0
    """A server whose cell's process is gone waits so long for its successor, then ends."""


@dataclass(kw_only=True)
class EngineConfig:
    kind: EngineKind = EngineKind.embedded
    page_size: int = 16
    kv_tokens: int = 65536
    max_batch: int = 64
    prefill_chunk: int = 512
    deterministic: bool = False
    """One fixed shape for every step, so that a call's tokens do not depend on what runs beside it or where it ran before.
    Slow: for tests and for tracking down differences."""
    keep_kv: bool = False
    """At a weight update: False = recompute, True = keep old KV reachable under a mixed key."""
    timed_tokens_per_s: float = 2000.0
    timed_prefill_tokens_per_s: float = 50000.0
    timed_move_tokens_per_s: float = 500000.0
    """Tokens whose KV comes from another cell."""
    timed_half: float = 8.0
    time_scale: float = 1.0
    sglang: SGLangConfig = field(default_factory=SGLangConfig)
