"""A gateway process that is killed or loses its parent: its journal is all that is left, and enough."""

import asyncio
import signal
import sys
from pathlib import Path

import aiohttp
import pytest

from gyre_hpc.config.stored import store_config
from gyre_hpc.gateway.run import port_file
from gyre_hpc.protocol.envelope import Envelope, encode
from gyre_hpc.protocol.journal import CallBegin
from gyre_hpc.protocol.to_gateway import Table
from gyre_hpc.shell.arguments import Birth, arguments
from tests.fakes.gateway_world import EXECUTION, TOKEN, TOOLS, InTurn, World, called, message, output_ids, small_config, spelled, until

USER = {"role": "user", "content": "hello"}
LONG = spelled("a rather long answer, cut in the middle")


class KilledGateway(World):
    """The gateway is a process of its own."""

    process: asyncio.subprocess.Process

    async def start(self, incarnation: int = 1) -> None:
        self.folder.token.parent.mkdir(parents=True, exist_ok=True)
        self.folder.token.write_text(TOKEN)
        store_config(self.config, self.folder.config)
        given = arguments(
            name="gateway-0", run=str(self.folder.root), attempt=1, incarnation=incarnation, supervisor_url="http://127.0.0.1:1"
        )
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gyre_hpc.processes.gateway", *given, stdin=asyncio.subprocess.PIPE
        )
        birth = Birth(
            name="gateway-0", attempt=1, incarnation=1, supervisor_url="", folder=self.folder, config=self.config, run_token=TOKEN
        )
        await until(port_file(birth).exists, "the gateway listens")
        self.url = f"http://127.0.0.1:{port_file(birth).read_text()}"

    async def tell(self, *rows: int) -> None:
        """Send a table over HTTP, until it is taken."""
        self.table += 1
        body = encode(Envelope("controller", 1, Table(self.table, 5.0, tuple(self._row(place, 1) for place in rows))))
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


@pytest.mark.parametrize("stream", [False, True])
def test_a_killed_gateway_goes_on_from_its_journal(tmp_path: Path, stream: bool) -> None:
    async def steps() -> None:
        config = small_config(progress_tokens=4)
        config.journal.fsync = True
        here = KilledGateway(tmp_path, config)
        await here.start()
        try:
            engine = await here.engine(InTurn(called("ls"), LONG))
            await here.tell(0)
            first = await here.ask([USER], tools=TOOLS)
            talk = [USER, message(first), {"role": "tool", "tool_call_id": message(first)["tool_calls"][0]["id"], "content": "x"}]
            engine.faults = ["hang:10"]
            broken = asyncio.create_task(here.ask(talk, tools=TOOLS, stream=stream))
            await until(lambda: len(output_ids(here, f"{EXECUTION}/1")) >= 8, "eight tokens are journaled")
            await here.kill()
            with pytest.raises(aiohttp.ClientError):
                await broken
            kept = len(output_ids(here, f"{EXECUTION}/1"))
            old_url = here.url
            await here.start(incarnation=2)
            await here.tell(0)
            assert here.url == old_url
            again = await here.ask(talk, tools=TOOLS, stream=stream)
            assert message(again)["content"] == bytes(LONG[:-1]).decode()
            last = engine.requests[-1]
            assert last["sampling_params"]["custom_params"]["position"] == kept
            assert last["input_ids"] == engine.requests[1]["input_ids"] + LONG[:kept]
            assert output_ids(here, f"{EXECUTION}/1") == LONG
            # What ended before the kill is answered again without sampling, and the same ids lead on.
            asked = len(engine.requests)
            assert message(await here.ask(talk, tools=TOOLS, stream=stream)) == message(again)
            assert len(engine.requests) == asked
            begins = [record for record in here.records() if isinstance(record, CallBegin)]
            assert [begin.parent for begin in begins] == [None, f"{EXECUTION}/0"]
        finally:
            await here.close()

    asyncio.run(steps())


def test_a_gateway_ends_when_its_parent_closes_the_pipe(tmp_path: Path) -> None:
    async def steps() -> None:
        here = KilledGateway(tmp_path, small_config())
        await here.start()
        assert here.process.stdin is not None
        here.process.stdin.close()
        assert await here.process.wait() == 0
        await here.close()

    asyncio.run(steps())
