"""A place for servers that pretend, and what is left of them."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from gyre_hpc.engines.sglang.parts import Address, Launch
from gyre_hpc.engines.sglang.process_table import marked
from gyre_hpc.engines.sglang.server import Server
from gyre_hpc.observability.process_tree import Process, identify, is_alive

PROGRAM = Path(__file__).with_name("server_program.py")
WITHIN_S = 60.0
NUM_PROCESSES = 6
"""Of one that pretends: keeper, guard, server and three below it."""


class ServerStage:
    """One folder, short enough for sockets; and the servers that were made for it."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="gs"))
        self.folder = self.root / "s"
        self._servers: list[Server] = []

    def launch(self, pretend: str = "", **changes: Any) -> Launch:
        return replace(pretended_launch(self.folder, pretend), **changes)

    def server(self, launch: Launch | None = None, **arguments: Any) -> Server:
        arguments = {"start_deadline_s": WITHIN_S, "orphan_s": WITHIN_S, "end_s": 5.0, "root_pid": os.getpid()} | arguments
        server = Server(launch or self.launch(), **arguments)
        self._servers.append(server)
        return server

    def processes(self) -> list[Process]:
        """Keeper, guard, server and everything below it."""
        return marked(str(self.folder))

    def litter(self) -> set[str]:
        """Names in the folder beside the logs."""
        return {path.name for path in self.folder.iterdir()} - {"server.log", "server.log.1", "keeper.log", "was-taken"}

    async def all_gone(self, processes: list[Process]) -> None:
        await until(lambda: not any(is_alive(process) for process in processes) and not self.processes(), "all processes end")

    async def close(self) -> None:
        for process in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        for server in self._servers:
            await server.leave()
        await self.all_gone([])
        shutil.rmtree(self.root)


def pretended_launch(folder: Path, pretend: str = "") -> Launch:
    return Launch(
        python=Path(sys.executable),
        program=(str(PROGRAM),),
        flags=("--model-path", "nowhere", *(("--pretend", pretend) if pretend else ())),
        environ={"PATH": os.environ["PATH"], "TMPDIR": str(folder / "tmp")},
        folder=folder,
    )


@contextlib.asynccontextmanager
async def stage() -> AsyncIterator[ServerStage]:
    here = ServerStage()
    try:
        yield here
    finally:
        await here.close()


async def until(true: Callable[[], object], what: str) -> None:
    for _ in range(int(WITHIN_S / 0.01)):
        if true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"waited {WITHIN_S} s in vain: {what}")


def bystander() -> "subprocess.Popen[bytes]":
    """A process that does nothing until it is killed."""
    return subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])


def process_of(pid: int) -> Process:
    found = identify(pid)
    assert found is not None, f"{pid} is gone"
    return found


def living(server: Server) -> list[Process]:
    """What of its processes is there at this moment, the keeper first."""
    return [process for pid in server.pids() if (process := identify(pid)) is not None]


def run(test: Callable[[ServerStage], Awaitable[None]]) -> None:
    """On a stage of its own, in a loop of its own."""

    async def on_stage() -> None:
        async with stage() as here:
            await test(here)

    asyncio.run(on_stage())


def answers(address: Address, key: str | None = None) -> int:
    """HTTP status for one who knows the key, or another one."""
    request = urllib.request.Request(
        f"{address.url}/model_info", headers={"Authorization": f"Bearer {address.key if key is None else key}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
