"""A gateway shard is killed in mid-call and started again: the harness asks the same once more, and gets what was begun, to its end.

The makers' clients ask again by themselves where they can (an answer that is not streamed); where they cannot, a harness does.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gyre_hpc.protocol.journal import CallBegin
from tests.fakes.answering_engine import AnsweringEngine
from tests.fakes.gateway_process import GatewayProcess
from tests.fakes.gateway_world import EXECUTION, InTurn, output_ids, small_config, spelled, until
from tests.fakes.sdk_clients import BROKEN, sdk_ask
from tests.fakes.spoken import PROTOCOLS, Spoken

ALL = pytest.mark.parametrize("spoken", PROTOCOLS, ids=lambda spoken: spoken.name)
STREAM = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
LONG = spelled("a rather long answer, cut in the middle by the end of a process")
TEXT = bytes(LONG[:-1]).decode()


@asynccontextmanager
async def shard(folder: Path) -> AsyncIterator[tuple[GatewayProcess, AnsweringEngine]]:
    config = small_config(progress_tokens=4, keepalive_s=0.1, hold_s=0.1)
    config.journal.fsync = True
    here = GatewayProcess(folder, config)
    await here.start()
    try:
        engine = await here.engine(InTurn(LONG))
        await here.tell(0)
        yield here, engine
    finally:
        await here.close()


async def persistently(ask: Callable[[], asyncio.Future[str]], tries: list[str]) -> str:
    """As harnesses do: what broke off is asked again, word for word."""
    while True:
        try:
            return await ask()
        except BROKEN as error:
            tries.append(type(error).__name__)
            await asyncio.sleep(0.1)


@ALL
@STREAM
def test_a_call_outlives_the_process_that_served_it(tmp_path: Path, spoken: Spoken, stream: bool) -> None:
    async def run() -> None:
        async with shard(tmp_path) as (here, engine):
            engine.faults = ["hang:10"]
            tries: list[str] = []
            asked = asyncio.create_task(
                persistently(lambda: asyncio.ensure_future(sdk_ask(here.url, spoken, stream=stream, retries=10)), tries)
            )
            await until(lambda: len(output_ids(here)) >= 8, "eight tokens are journaled")
            await here.kill()
            kept = len(output_ids(here))
            await here.start(incarnation=2)
            await here.tell(0)
            assert await asked == TEXT
            # A client that does not stream has asked again by itself; one that does cannot, once it has a part in hand.
            assert stream or not tries
            assert engine.requests[1]["sampling_params"]["custom_params"]["position"] == kept, "it goes on from what was durable"
            assert output_ids(here) == LONG
            assert [(end.call, end.finish) for end in here.ends()] == [(f"{EXECUTION}/0", "stop")]

    asyncio.run(run())


@ALL
def test_equal_questions_of_two_agents_find_their_own_calls_again(tmp_path: Path, spoken: Spoken) -> None:
    async def run() -> None:
        async with shard(tmp_path) as (here, engine):
            engine.faults = ["hang:10", "hang:15"]
            asked = [
                asyncio.create_task(persistently(lambda: asyncio.ensure_future(sdk_ask(here.url, spoken, stream=True)), []))
                for _ in range(2)
            ]
            await until(
                lambda: all(len(output_ids(here, f"{EXECUTION}/{ordinal}")) >= 8 for ordinal in range(2)), "both are half journaled"
            )
            await here.kill()
            await here.start(incarnation=2)
            await here.tell(0)
            assert await asyncio.gather(*asked) == [TEXT, TEXT]
            assert sorted(record.call for record in here.records() if isinstance(record, CallBegin)) == [
                f"{EXECUTION}/0",
                f"{EXECUTION}/1",
            ]
            assert output_ids(here) == output_ids(here, f"{EXECUTION}/1") == LONG
            assert sorted(request["sampling_params"]["custom_params"]["position"] > 0 for request in engine.requests[2:]) == [True, True]

    asyncio.run(run())
