"""Words that cannot be written end a connection; nobody waits for them."""

import asyncio
from pathlib import Path

import aiohttp
import pytest

from gyre_hpc.gateway.protocols.chat_completions import ChatCompletions, ChatStream
from tests.fakes.gateway_world import InTurn, spelled, world


@pytest.mark.parametrize(
    ("stream", "broken"), [(True, (ChatStream, "closing")), (True, (ChatStream, "opening")), (False, (ChatCompletions, "whole"))]
)
def test_a_client_is_hung_up_on_when_its_answer_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: bool, broken: tuple[type, str]
) -> None:
    def fail(*args: object) -> bytes:
        raise RuntimeError("a fault of ours")

    async def steps() -> None:
        async with world(tmp_path) as here:
            await here.engine(InTurn(spelled("ok")))
            here.route(0)
            with monkeypatch.context() as patch:
                patch.setattr(*broken, fail)
                with pytest.raises(aiohttp.ClientError):
                    await here.ask([{"role": "user", "content": "hello"}], stream=stream)
            again = await here.ask([{"role": "user", "content": "hello"}], stream=stream)
            assert again["choices"][0]["message"]["content"] == "ok"
            assert len(here.ends()) == 1, "the client asked again and joined its call"

    asyncio.run(steps())
