"""Inference engines. `create_engine` chooses the kind; only the embedded one loads torch.

base.py           what a cell needs of an engine
embedded/         computes in this process
sglang/           asks a server of its own
timed.py          takes the time and computes nothing
scripted.py       answers from a function
served.py, http_surface.py, calls.py, backend.py, request.py, answer.py   shared: SGLang's HTTP API, gate, live calls
stopping.py       when an answer ends
ids_digest.py     hash of what an engine saw and produced
page_table.py, conversations.py, kv_pages.py   keys and holders of prefix pages; whose they are; pages for other cells
"""

from typing import TYPE_CHECKING

from gyre_hpc.config.schema import EngineConfig, EngineKind, ModelConfig

if TYPE_CHECKING:
    from gyre_hpc.engines.base import Engine
    from gyre_hpc.engines.embedded.follower import EngineFollower
    from gyre_hpc.engines.scripted import ScriptedAnswer
    from gyre_hpc.engines.sglang.parts import Holder, Prefill
    from gyre_hpc.engines.sglang.site import Site
    from gyre_hpc.engines.stopping import Decode
    from gyre_hpc.engines.timed import Timer
    from gyre_hpc.models.tensor_ranks import TensorRanks
    from gyre_hpc.transport.base import SnapshotStore


def create_engine(
    config: EngineConfig,
    *,
    model_config: ModelConfig,
    vocab_size: int,
    store: "SnapshotStore | None",
    run_token: str,
    host: str,
    timer: "Timer | None",
    port: int = 0,
    rank: int = 0,
    decode: "Decode | None" = None,
    script: "ScriptedAnswer | None" = None,
    moves_kv: bool = False,
    ranks: "TensorRanks | None" = None,
    site: "Site | None" = None,
    prefill: "Prefill | None" = None,
) -> "Engine":
    """The engine of a cell's first rank. embedded needs `store`, timed needs `timer`. Raises UserError on an impossible size.

    decode: ids -> text, for stop strings; without it they are refused. script: the embedded engine's tokens, prescribed.
    moves_kv: its pages can go to other cells, and come from them. ranks: those that hold the embedded engine's model together;
    the others follow (create_follower). sglang needs `store` and `site`, where its server runs and its surface is; prefill: of the
    decoding half of a pair, the other half.
    """
    match config.kind:
        case EngineKind.embedded:
            from gyre_hpc.engines.embedded.engine import EmbeddedEngine
            from gyre_hpc.models.qwen3_config import from_model_config

            assert store is not None, "the embedded engine reads weights from a snapshot store"
            model = from_model_config(model_config, vocab_size)
            return EmbeddedEngine(
                config,
                model=model,
                store=store,
                run_token=run_token,
                host=host,
                port=port,
                rank=rank,
                decode=decode,
                script=script,
                moves_kv=moves_kv,
                ranks=ranks,
            )
        case EngineKind.sglang:
            from gyre_hpc.engines.sglang.build import create_sglang_engine
            from gyre_hpc.models.qwen3_config import from_model_config

            assert store is not None and site is not None and site.interface == host, "a server has weights and a place"
            assert script is None, "SGLang draws its own tokens"
            return create_sglang_engine(
                config,
                site,
                model=from_model_config(model_config, vocab_size),
                store=store,
                run_token=run_token,
                port=port,
                rank=rank,
                decode=decode,
                prefill=prefill,
            )
        case EngineKind.timed:
            from gyre_hpc.engines.timed import TimedEngine

            assert timer is not None, "the timed engine waits by a timer"
            assert ranks is None, "the timed engine has no model to share"
            assert script is None, "the timed engine has a token source instead"
            return TimedEngine(
                config,
                timer=timer,
                run_token=run_token,
                host=host,
                port=port,
                rank=rank,
                max_context=model_config.max_context,
                vocab_size=vocab_size,
                decode=decode,
                moves_kv=moves_kv,
            )


def create_server_part(config: EngineConfig, site: "Site", *, model_config: ModelConfig, vocab_size: int) -> "Holder":
    """sglang: the part of the cell's server on another node than the first, held by that node's first rank."""
    from gyre_hpc.engines.sglang.build import create_server
    from gyre_hpc.models.qwen3_config import from_model_config

    assert config.kind is EngineKind.sglang and site.nodes.number > 0
    return create_server(config, site, model=from_model_config(model_config, vocab_size))


def create_follower(
    config: EngineConfig,
    *,
    model_config: ModelConfig,
    vocab_size: int,
    store: "SnapshotStore",
    ranks: "TensorRanks",
    decode: "Decode | None" = None,
) -> "EngineFollower":
    """What another rank than the first does for an embedded engine whose model `ranks` hold together."""
    from gyre_hpc.engines.embedded.follower import EngineFollower
    from gyre_hpc.models.qwen3_config import from_model_config

    assert config.kind is EngineKind.embedded
    model = from_model_config(model_config, vocab_size)
    return EngineFollower(config, model=model, ranks=ranks, snapshot=store.get, decode=decode)
