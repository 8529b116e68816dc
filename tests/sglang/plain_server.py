"""A real SGLang as our engine starts and asks it, without the engine: for what the server itself computes and holds."""

import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gyre_hpc.config.engine_schema import Device, EngineConfig
from gyre_hpc.config.place import cache_folder
from gyre_hpc.config.schema import Config
from gyre_hpc.engines.sglang.client import Client
from gyre_hpc.engines.sglang.environment import find
from gyre_hpc.engines.sglang.flags import create_launch
from gyre_hpc.engines.sglang.server import Server
from gyre_hpc.engines.sglang.site import Site


@asynccontextmanager
async def plain_server(
    config: EngineConfig, model_folder: Path, *, device: Device, max_context: int, world: int = 1
) -> AsyncIterator[tuple[Client, Server]]:
    """model_folder: its config.json counts, the weights are nonsense until somebody sends them."""
    sglang, cache = config.sglang, cache_folder(Config())
    # A short path, which pytest's folders are not.
    with tempfile.TemporaryDirectory(prefix="gn-", dir="/tmp") as folder:
        launch = create_launch(
            config,
            Site(folder=Path(folder) / "s", cache=cache, world=world),
            max_context=max_context,
            model_folder=model_folder,
            device=device,
            python=find(sglang, cache, device),
            program=(sglang.launcher,) if sglang.launcher else ("-m", "sglang.launch_server"),
            inherited=os.environ,
        )
        server = Server(launch, start_deadline_s=sglang.start_deadline_s, orphan_s=5.0, root_pid=os.getpid())
        try:
            client = Client(await server.start())
            try:
                yield client, server
            finally:
                await client.close()
        finally:
            await server.stop()
