"""Puts the parts of this room together for one cell."""

from pathlib import Path

from gyre_hpc.config.schema import EngineConfig
from gyre_hpc.engines.served import ServedEngine
from gyre_hpc.engines.sglang.parts import Nodes
from gyre_hpc.engines.stopping import Decode
from gyre_hpc.models.qwen3_config import Qwen3Config
from gyre_hpc.transport.base import SnapshotStore


def create_sglang_engine(
    config: EngineConfig,
    *,
    model: Qwen3Config,
    store: SnapshotStore,
    run_token: str,
    host: str,
    port: int,
    rank: int,
    world: int,
    nodes: Nodes,
    folder: Path,
    cache: Path,
    decode: Decode | None,
) -> ServedEngine:
    """The engine of a cell's first rank. Raises UserError when SGLang's environment is missing."""
    raise NotImplementedError
