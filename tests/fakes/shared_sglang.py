"""One real SGLang per test process, for engines that come and go: each adopts the server that the one before it left.

The server ends with the test process (or, were that killed, by its keeper).
"""

import atexit
import functools
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from gyre_hpc.config.engine_schema import Device, EngineConfig
from gyre_hpc.engines.sglang.build import launch_here
from gyre_hpc.engines.sglang.client import Client
from gyre_hpc.engines.sglang.engine import SGLangEngine
from gyre_hpc.engines.sglang.memory import ServerMemory
from gyre_hpc.engines.sglang.parts import Holder, Launch
from gyre_hpc.engines.sglang.predecessor import end_predecessor
from gyre_hpc.engines.sglang.server import Server
from gyre_hpc.engines.sglang.site import Site
from gyre_hpc.engines.sglang.weights import new_sender
from gyre_hpc.engines.stopping import Decode
from gyre_hpc.models.qwen3_config import Qwen3Config
from gyre_hpc.transport.base import SnapshotStore
from tests.fakes.sglang_here import sglang_config

ORPHAN_S = 300.0


class Kept(Server):
    """Its server outlives it."""

    async def stop(self) -> None:
        await self.leave()


def new_engine(
    config: EngineConfig,
    model: Qwen3Config,
    store: SnapshotStore,
    *,
    run_token: str,
    host: str,
    decode: Decode | None = None,
    holder: Holder | None = None,
    **more: Any,
) -> SGLangEngine:
    """An engine as build.py makes it, of another engine's server. Of `config` only keep_kv counts: the server is what it is."""
    sglang = sglang_config()
    server = holder or Kept(_launch(model), start_deadline_s=300.0, orphan_s=ORPHAN_S, root_pid=os.getpid())
    return SGLangEngine(
        holder=server,
        connect=Client,
        sender=new_sender(sglang, model=model, device=Device.cpu, dtype="float32", host="127.0.0.1", world=1, folder=_folder() / "weights"),
        memory=ServerMemory(server, Device.cpu, rank=0, num_local=1),
        store=store,
        run_token=run_token,
        host=host,
        max_context=model.max_context,
        vocab_size=model.vocab_size,
        decode=decode,
        keep_kv=config.keep_kv,
        **more,
    )


@functools.cache
def _launch(model: Qwen3Config) -> Launch:
    """Made once: pytest's variables differ from test to test."""
    config = EngineConfig(page_size=8, kv_tokens=16384, max_batch=8, prefill_chunk=64, sglang=sglang_config())
    return launch_here(config, Site(folder=_folder() / "s", cache=Path("/nonexistent")), model=model)


@functools.cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="gs-", dir="/tmp"))
    atexit.register(_clear, folder)
    return folder


def _clear(folder: Path) -> None:
    end_predecessor(folder / "s", 5.0)
    shutil.rmtree(folder, ignore_errors=True)
