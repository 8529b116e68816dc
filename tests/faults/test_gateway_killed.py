"""A gateway process that is killed or loses its parent: its journal is all that is left, and enough."""

import asyncio
from pathlib import Path

import aiohttp
import pytest

from gyre_hpc.protocol.journal import CallBegin
from tests.fakes.gateway_process import GatewayProcess
from tests.fakes.gateway_world import EXECUTION, TOOLS, InTurn, called, message, output_ids, small_config, spelled, until, world

USER = {"role": "user", "content": "hello"}
LONG = spelled("a rather long answer, cut in the middle")


@pytest.mark.parametrize("stream", [False, True])
def test_a_killed_gateway_goes_on_from_its_journal(tmp_path: Path, stream: bool) -> None:
    async def steps() -> None:
        config = small_config(progress_tokens=4)
        config.journal.fsync = True
        here = GatewayProcess(tmp_path, config)
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
        here = GatewayProcess(tmp_path, small_config())
        await here.start()
        assert here.process.stdin is not None
        here.process.stdin.close()
        assert await here.process.wait() == 0
        await here.close()

    asyncio.run(steps())


def test_a_gateway_that_ends_in_order_writes_every_token_that_came(tmp_path: Path) -> None:
    """Neither so many tokens nor so much time that it would have written them by itself."""

    async def steps() -> None:
        async with world(tmp_path, small_config(progress_tokens=1000, progress_s=600.0)) as here:
            engine = await here.engine(InTurn(LONG, LONG))
            engine.faults = ["hang:10", "hang:17"]
            here.route(0)
            asked = [asyncio.create_task(here.ask([USER], tools=TOOLS, execution=name)) for name in (EXECUTION, "train-0-0-1")]
            await until(lambda: here.tokens().get("sampled") == 27, "both calls have tokens")
            assert not output_ids(here) and not output_ids(here, "train-0-0-1/0")
            await here.gateway.close()
            assert sorted([output_ids(here), output_ids(here, "train-0-0-1/0")]) == [LONG[:10], LONG[:17]]
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
            await here.start(incarnation=2)
            assert here.tokens()["sampled"] == 27

    asyncio.run(steps())
