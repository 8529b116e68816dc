"""A gateway shard as a process of its own, as the supervisor starts it; it can be killed and started again."""

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import aiohttp

from gyre_hpc.config.stored import store_config
from gyre_hpc.gateway.run import port_file
from gyre_hpc.protocol.envelope import Envelope, Message, encode
from gyre_hpc.protocol.to_gateway import Table
from gyre_hpc.shell.arguments import Birth, arguments
from tests.fakes.gateway_world import TOKEN, World, until


class GatewayProcess(World):
    """World whose gateway runs elsewhere: it is told its tables over HTTP."""

    process: asyncio.subprocess.Process
    wrapper: tuple[str, ...] = ()
    """Program and arguments in front of the interpreter's."""
    inside: Path | None = None
    """Where the process finds the run folder, if elsewhere than we do."""

    async def start(self, incarnation: int = 1, **options: Any) -> None:
        """`options`: of the subprocess."""
        if not self.folder.config.exists():
            self.folder.token.parent.mkdir(parents=True, exist_ok=True)
            self.folder.token.write_text(TOKEN)
            store_config(self.config, self.folder.config)
        given = arguments(
            name="gateway-0",
            run=str(self.inside or self.folder.root),
            attempt=1,
            incarnation=incarnation,
            supervisor_url="http://127.0.0.1:1",
        )
        command = (*self.wrapper, sys.executable, "-m", "gyre_hpc.processes.gateway", *given)
        self.process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE, **options)
        birth = Birth(
            name="gateway-0", attempt=1, incarnation=1, supervisor_url="", folder=self.folder, config=self.config, run_token=TOKEN
        )
        await until(port_file(birth).exists, "the gateway listens")
        self.url = f"http://127.0.0.1:{port_file(birth).read_text()}"

    async def tell(self, *rows: int, term: int = 1) -> None:
        """Send a table until it is taken."""
        self.table += 1
        await self.send("controller", Table(self.table, 5.0, tuple(self._row(place, term) for place in rows)))

    async def send(self, sender: str, message: Message) -> None:
        """Until it is taken."""
        body = encode(Envelope(sender, 1, message))
        for _ in range(500):
            try:
                async with self.http.post(f"{self.url}/messages", data=body, headers={"Authorization": f"Bearer {TOKEN}"}) as response:
                    assert response.status == 204
                    return
            except aiohttp.ClientError:
                await asyncio.sleep(0.02)
        raise AssertionError("the gateway does not take messages")

    async def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()

    async def close(self) -> None:
        await self.http.close()
        if self.process.returncode is None:
            await self.kill()
        for engine in self.engines:
            await engine.close()
