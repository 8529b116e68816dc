"""The core of one rank, made of the configuration: the whole model, or its part of one that several ranks share."""

from collections.abc import Callable

from gyre_hpc import clock
from gyre_hpc.config.schema import EngineConfig
from gyre_hpc.engines.embedded.core import EngineCore
from gyre_hpc.engines.embedded.fixed_forward import FixedForward
from gyre_hpc.engines.embedded.forward import Forward
from gyre_hpc.engines.embedded.memory import KVMemory
from gyre_hpc.engines.stopping import Decode
from gyre_hpc.models.incremental import Prepared
from gyre_hpc.models.parameters import Parameters
from gyre_hpc.models.qwen3_config import Qwen3Config
from gyre_hpc.models.sharded_incremental import ShardedPrepared
from gyre_hpc.models.sharding import Shard
from gyre_hpc.models.tensor_ranks import TensorRanks
from gyre_hpc.protocol.identity import Version


def new_forward(config: EngineConfig, model: Qwen3Config, ranks: TensorRanks | None) -> Forward:
    """Raises UserError when the ranks cannot share the model."""
    own, arrange = model, None
    if ranks is not None:
        shard = Shard(config=model, rank=ranks.rank, size=ranks.size)
        own = shard.own

        def arrange(snapshot: Parameters) -> Prepared:
            return ShardedPrepared(snapshot, shard, ranks)

    return FixedForward(own, config.max_batch, arrange) if config.deterministic else Forward(own, arrange)


def new_core(
    config: EngineConfig,
    forward: Forward,
    snapshot: Callable[[Version], Parameters],
    *,
    decode: Decode | None,
    stream_tokens: int = 16,
    stream_s: float = 0.25,
) -> EngineCore:
    """snapshot: whole weights of a version."""

    def new_memory() -> KVMemory:
        return KVMemory(forward, kv_tokens=config.kv_tokens, page_size=config.page_size, max_batch=config.max_batch, keep_kv=config.keep_kv)

    return EngineCore(
        new_memory,
        forward=forward,
        snapshot=snapshot,
        decode=decode,
        max_batch=config.max_batch,
        prefill_chunk=config.prefill_chunk,
        keep_kv=config.keep_kv,
        stream_tokens=stream_tokens,
        stream_s=stream_s,
        now=clock.monotonic_s,
    )
