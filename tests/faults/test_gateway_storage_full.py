"""A run folder that is full in mid-run and is enlarged later: harnesses wait, nothing is lost, nothing is sampled twice."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import orjson
import pytest
from aiohttp import web

from gyre_hpc.observability.events import read_events
from gyre_hpc.protocol.envelope import Message, decode
from gyre_hpc.protocol.supervision import Directory, Entry
from gyre_hpc.protocol.to_batch import GatewayReport
from tests.fakes.gateway_process import GatewayProcess
from tests.fakes.gateway_world import EXECUTION, InTurn, output_ids, small_config, spelled, until
from tests.fakes.small_disk import SmallDisk, problem, small_disk
from tests.fakes.spoken import CHAT, PROTOCOLS, Reading, Spoken, events, key, post, text_of

LONG = spelled("a long answer, whose second half finds the disk full. " * 60)
OTHER = spelled("asked while the disk was full")


@asynccontextmanager
async def controller() -> AsyncIterator[tuple[str, list[Message]]]:
    """URL of somebody who listens to the gateway's reports, and what he heard."""
    heard: list[Message] = []

    async def take(request: web.Request) -> web.Response:
        heard.append(decode(await request.read()).body)
        return web.Response(status=204)

    app = web.Application()
    app.router.add_post("/messages", take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", heard
    finally:
        await runner.cleanup()


def full(heard: list[Message]) -> str:
    """What the newest report says of the disk."""
    reports = [message for message in heard if isinstance(message, GatewayReport)]
    return reports[-1].storage_full if reports else ""


@asynccontextmanager
async def shard(disk: SmallDisk) -> AsyncIterator[GatewayProcess]:
    """A gateway whose whole run folder is on this disk."""
    config = small_config(progress_tokens=4, keepalive_s=0.05, hold_s=0.05)
    config.journal.fsync = True
    config.model.max_context, config.harness.max_output_tokens = 10_000, len(LONG)
    here = GatewayProcess(disk.outside, config)
    here.inside, here.wrapper = disk.inside, disk.enter
    await here.start()
    try:
        yield here
    finally:
        await here.close()


@pytest.mark.parametrize("spoken", PROTOCOLS, ids=lambda spoken: spoken.name)
def test_a_full_run_folder_holds_answers_back_until_it_is_enlarged(
    tmp_path: Path, needs: Callable[[str, str], None], spoken: Spoken
) -> None:
    needs("namespaces", problem())

    async def steps(here: GatewayProcess, disk: SmallDisk, heard: list[Message]) -> None:
        engine = await here.engine(InTurn(LONG, OTHER))
        engine.faults = ["late:20"]
        await here.tell(0)
        limit = {"max_tokens": len(LONG)} if spoken.more else {}
        first = Reading(await here.http.post(spoken.url(here), data=orjson.dumps(spoken.body(stream=True, **limit)), headers=key()))
        await until(lambda: len(output_ids(here)) == 20, "half an answer is journaled")
        disk.fill()
        engine.gate.set()
        await until(lambda: "No space left" in full(heard), "the shard tells its controller why nothing goes on")
        # All was sampled, but what is not durable is not told: keep-alives are.
        await until(lambda: engine.num_sampled == len(LONG), "the engine has given all of it")
        await first.until(spoken, num_empty=sum(map(spoken.is_empty, events(first.data))) + 4)
        said = "".join(map(spoken.delta, events(first.data))).encode()
        assert bytes(LONG[:-1]).startswith(said)
        assert len(said) < len(LONG) // 2
        assert not [event for event in events(first.data) if spoken.is_end(event)]
        # A call that comes now waits, too: its client hears spaces, and no cell is asked.
        late = Reading(await here.http.post(spoken.url(here), data=orjson.dumps(spoken.body("late")), headers=key()))
        while len(late.data) < 3:
            late.data += await late.response.content.readany()
        assert (late.response.status, late.data.strip(), len(engine.requests)) == (200, b"", 1)

        await disk.resize("16m")
        assert text_of(spoken, await first.rest()) == bytes(LONG[:-1]).decode()
        assert text_of(spoken, await late.rest()) == bytes(OTHER[:-1]).decode()
        await until(lambda: not full(heard), "the shard tells that it is cured")
        await until(lambda: len(here.ends()) == 2, "both ends are in the journal")
        assert (output_ids(here), output_ids(here, f"{EXECUTION}/1")) == (LONG, OTHER)
        assert engine.num_sampled == len(LONG) + len(OTHER), "nothing was sampled twice"
        assert [request["fault"] for request in engine.requests] == ["late", "ok"]

    async def run() -> None:
        folder = tmp_path / "run"
        folder.mkdir()
        async with small_disk(folder, "256k") as disk, shard(disk) as here, controller() as (url, heard):
            await here.send("supervisor-0", Directory(1, (Entry("controller", 1, url),)))
            await steps(here, disk, heard)
            here.process.terminate()
            await here.process.wait()
            # The folder's own events tell it as well, once they can be written.
            told = [event.fields["reason"] for event in read_events(disk.outside / "events") if event.kind == "storage_full"]
            assert ("No space left" in told[0], told[-1]) == (True, "")

    asyncio.run(run())


def test_a_shard_that_is_killed_on_a_full_disk_starts_on_it_again_and_goes_on_from_what_is_durable(
    tmp_path: Path, needs: Callable[[str, str], None]
) -> None:
    needs("namespaces", problem())

    async def steps(here: GatewayProcess, disk: SmallDisk) -> None:
        engine = await here.engine(InTurn(LONG))
        engine.faults = ["late:20"]
        await here.tell(0)
        asked = asyncio.create_task(post(here, CHAT, CHAT.body(stream=True)))
        await until(lambda: len(output_ids(here)) == 20, "half an answer is journaled")
        disk.fill()
        engine.gate.set()
        await until(lambda: engine.num_sampled == len(LONG), "the engine has given all of it")
        await here.kill()
        with pytest.raises(aiohttp.ClientError):
            await asked
        durable = len(output_ids(here))
        url = here.url
        await here.start(incarnation=2)
        assert here.url == url
        await here.tell(0)
        again = asyncio.create_task(post(here, CHAT, CHAT.body(stream=True)))
        await until(lambda: len(engine.requests) == 2, "it goes on from what is durable, though nothing new is yet")
        assert engine.requests[1]["sampling_params"]["custom_params"]["position"] == durable
        await disk.resize("16m")
        status, data = await again
        assert (status, text_of(CHAT, data)) == (200, bytes(LONG[:-1]).decode())
        assert output_ids(here) == LONG

    async def run() -> None:
        folder = tmp_path / "run"
        folder.mkdir()
        async with small_disk(folder, "256k") as disk, shard(disk) as here:
            await steps(here, disk)

    asyncio.run(run())
