"""Puts the parts of this room together for one cell: the engine of its first rank, and the servers of its nodes."""

import hashlib
import os
from pathlib import Path

from gyre_hpc.config.engine_schema import Device, EngineConfig, SGLangKV, WeightRoute
from gyre_hpc.engines.sglang.client import Client
from gyre_hpc.engines.sglang.engine import SGLangEngine
from gyre_hpc.engines.sglang.environment import VERSION, choose_device, find
from gyre_hpc.engines.sglang.flags import create_launch, dtype_of, room_for
from gyre_hpc.engines.sglang.memory import ServerMemory
from gyre_hpc.engines.sglang.model_folder import write_model_folder
from gyre_hpc.engines.sglang.parts import Address, Launch, Prefill, Upstream
from gyre_hpc.engines.sglang.prefill import Paired
from gyre_hpc.engines.sglang.server import Server
from gyre_hpc.engines.sglang.site import Site
from gyre_hpc.engines.sglang.weights import new_sender
from gyre_hpc.engines.stopping import Decode
from gyre_hpc.errors import UserError
from gyre_hpc.models.qwen3_config import Qwen3Config
from gyre_hpc.transport.base import SnapshotStore

_PROGRAM = ("-m", "sglang.launch_server")
_END_S = 4.0
"""Between SIGTERM and SIGKILL of a server: the cell, which waits for it, is itself killed 8 s after it was told to end."""


def create_sglang_engine(
    config: EngineConfig,
    site: Site,
    *,
    model: Qwen3Config,
    store: SnapshotStore,
    run_token: str,
    port: int,
    rank: int,
    decode: Decode | None,
    prefill: Prefill | None = None,
) -> SGLangEngine:
    """The engine of a cell's first rank. Raises UserError when SGLang's environment is missing, or the configuration cannot be.

    prefill: of the decoding half of a pair (engine.sglang.kv=pd), the other half.
    """
    nodes, device = site.nodes, choose_device(config.sglang.device)
    dtype = dtype_of(config, device)
    if nodes.count > 1 and config.sglang.weights is WeightRoute.disk:
        raise UserError("engine.sglang.weights", "disk", "set group: the cell's nodes do not see one another's scratch folder")
    server = create_server(config, site, model=model)

    def connect(address: Address) -> Upstream:
        client = Client(address)
        return client if prefill is None else Paired(client, prefill, served=lambda: engine.version_text())

    sender = new_sender(
        config.sglang,
        model=model,
        device=device,
        dtype=dtype,
        host=nodes.address.rpartition(":")[0] if nodes.count > 1 else "127.0.0.1",
        world=site.world,
        folder=site.folder / "weights",
    )
    engine = SGLangEngine(
        holder=server,
        connect=connect,
        sender=sender,
        memory=ServerMemory(server, device, rank=rank, num_local=site.world // nodes.count),
        store=store,
        run_token=run_token,
        host=site.interface,
        port=port,
        max_context=model.max_context,
        vocab_size=model.vocab_size,
        decode=decode,
        keep_kv=config.keep_kv,
        seeded=config.deterministic and device is Device.cuda,
        kv=_capability(config.sglang.kv),
        # Other runs have other weights under the same versions, and the storage may outlive them all.
        namespace=hashlib.sha256(run_token.encode()).hexdigest()[:32] if config.sglang.kv is SGLangKV.shared else "",
        least_kv=room_for(model.max_context, config.page_size, site.part),
        facts={
            "sglang_version": VERSION,
            "device": device.value,
            "dtype": dtype,
            "page_size": config.page_size,
            "max_running_requests": config.max_batch,
            "chunked_prefill_size": config.prefill_chunk,
        },
    )
    return engine


def create_server(config: EngineConfig, site: Site, *, model: Qwen3Config) -> Server:
    """Of one node of a cell: on the first it is the engine's, on the others their first rank holds it. Raises UserError."""
    sglang, nodes = config.sglang, site.nodes
    if nodes.count > 1 and sglang.kv is SGLangKV.pd:
        raise UserError(
            "engine.sglang.kv", "pd", f"cells of one node make pairs, this one has {nodes.count}; set none, or fewer ranks_per_cell"
        )
    return Server(
        launch_here(config, site, model=model),
        start_deadline_s=sglang.start_deadline_s,
        orphan_s=sglang.orphan_s,
        root_pid=site.root_pid,
        is_first=nodes.number == 0,
        end_s=_END_S,
        log=site.log,
    )


def launch_here(config: EngineConfig, site: Site, *, model: Qwen3Config) -> Launch:
    """How this node's server is started from this process; writes its model folder. Raises UserError."""
    device = choose_device(config.sglang.device)
    launcher = config.sglang.launcher
    return create_launch(
        config,
        site,
        max_context=model.max_context,
        model_folder=write_model_folder(site.folder / "model", model, dtype=dtype_of(config, device)),
        device=device,
        python=find(config.sglang, site.cache, device),
        program=(str(Path(launcher).expanduser().resolve()),) if launcher else _PROGRAM,
        inherited=os.environ,
    )


def _capability(kv: SGLangKV) -> str:
    """How planning counts on it (EngineCapabilities.kv)."""
    return {SGLangKV.none: "none", SGLangKV.pd: "pd", SGLangKV.shared: "shared"}[kv]
