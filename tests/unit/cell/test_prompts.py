"""Prompts between the two cells of a pair, over real connections: every wait ends, and nothing of a request outlives its asker."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import aiohttp
import msgspec
import pytest

from gyre_hpc.cell.kv_wire import BadBody
from gyre_hpc.cell.prompt_client import PromptClient
from gyre_hpc.cell.prompt_wire import BEAT, Computed, read_computed
from gyre_hpc.cell.prompts import Prompts
from gyre_hpc.engines.sglang.parts import Bootstrap, NotAnswered, Refused, ServerLost
from gyre_hpc.errors import GyreError
from gyre_hpc.ports import listen
from gyre_hpc.shell.inbox import make_app
from gyre_hpc.shell.serving import Serving

TOKEN = "secret"
BODY = {"rid": "r.1.", "input_ids": [1, 2, 3], "sampling_params": {"temperature": 1.0}, "bootstrap_room": (1 << 63) - 1}


class Stage:
    """The process of a cell that prefills, and a client of the cell that decodes."""

    def __init__(self) -> None:
        self.asked: list[tuple[Mapping[str, Any], str]] = []
        self.num_broken_off = 0
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.url: str | None = None
        self.client = PromptClient("cell-0", lambda cell: self.url if cell == "cell-0" else None, TOKEN, silence_s=0.5)
        self._serving: list[Serving] = []

    async def serve(self, port: int = 4000, beat_s: float = 0.01) -> None:
        """One more life of that process, with its bootstrap server at `port`."""
        app = make_app(TOKEN)
        Prompts(self.compute, Bootstrap(host="10.0.0.7", port=port), beat_s).add_to(app)
        serving = Serving(app, shutdown_s=0.1)
        self.url = await serving.start(listen("127.0.0.1"))
        self._serving.append(serving)

    async def compute(self, body: Mapping[str, Any], version: str) -> str:
        self.asked.append((body, version))
        try:
            return await asyncio.shield(self.answer)
        except asyncio.CancelledError:
            self.num_broken_off += 1
            raise

    async def die(self) -> None:
        await self._serving.pop().close()

    async def close(self) -> None:
        await self.client.close()
        while self._serving:
            await self.die()


def run(test: Callable[[Stage], Awaitable[None]]) -> None:
    async def main() -> None:
        stage = Stage()
        await stage.serve()
        try:
            await test(stage)
        finally:
            await stage.close()

    asyncio.run(main())


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_so():
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("beats", [0, 3])
def test_a_prompt_is_computed_there_and_its_label_comes_back(beats: int) -> None:
    async def test(stage: Stage) -> None:
        asking = asyncio.create_task(stage.client.prompt(BODY, "0.1"))
        await until(lambda: bool(stage.asked))
        if beats:
            # Longer than the silence that would be the end of it.
            await asyncio.sleep(0.7)
        stage.answer.set_result("0.1")
        assert await asking == "0.1"
        assert stage.asked == [(BODY, "0.1")]

    run(test)


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize(
    ("error", "kind"), [(Refused("too long"), Refused), (NotAnswered("stands still"), NotAnswered), (ServerLost("gone"), NotAnswered)]
)
def test_what_went_wrong_there_is_said_here(error: GyreError, kind: type[GyreError], is_late: bool) -> None:
    async def test(stage: Stage) -> None:
        asking = asyncio.create_task(stage.client.prompt(BODY, "0.1"))
        await until(lambda: bool(stage.asked))
        if is_late:
            await asyncio.sleep(0.05)
        stage.answer.set_exception(error)
        with pytest.raises(kind, match=str(error)):
            await asking

    run(test)


@pytest.mark.parametrize("is_late", [False, True])
def test_hanging_up_ends_the_prompt(is_late: bool) -> None:
    async def test(stage: Stage) -> None:
        asking = asyncio.create_task(stage.client.prompt(BODY, "0.1"))
        await until(lambda: bool(stage.asked))
        if is_late:
            await asyncio.sleep(0.05)
        asking.cancel()
        await until(lambda: stage.num_broken_off == 1)

    run(test)


def test_a_process_that_ends_costs_the_prompts_it_had() -> None:
    async def test(stage: Stage) -> None:
        asking = asyncio.create_task(stage.client.prompt(BODY, "0.1"))
        await until(lambda: bool(stage.asked))
        await stage.die()
        with pytest.raises(NotAnswered, match="cell-0, which prefills"):
            await asking
        with pytest.raises(NotAnswered, match="cell-0, which prefills"):
            await stage.client.prompt(BODY, "0.1")

    run(test)


def test_a_process_that_falls_silent_is_given_up() -> None:
    """Stopped, or behind a cable that was pulled: nothing closes the connection."""

    async def test(stage: Stage) -> None:
        with socket.create_server(("127.0.0.1", 0)) as nobody:
            stage.url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
            with pytest.raises(NotAnswered, match="does not answer"):
                await stage.client.prompt(BODY, "0.1")

    run(test)


def test_a_partner_without_an_address_is_not_waited_for() -> None:
    async def test(stage: Stage) -> None:
        stage.url = None
        for asking in (stage.client.where(), stage.client.prompt(BODY, "0.1")):
            with pytest.raises(NotAnswered, match="has no address yet"):
                await asking

    run(test)


def test_the_bootstrap_server_of_the_next_life_is_found() -> None:
    async def test(stage: Stage) -> None:
        assert await stage.client.where() == Bootstrap(host="10.0.0.7", port=4000)
        url = stage.url
        await stage.die()
        assert await stage.client.where() == Bootstrap(host="10.0.0.7", port=4000), "asked once of each process"
        await stage.serve(port=5000)
        assert stage.url != url
        assert await stage.client.where() == Bootstrap(host="10.0.0.7", port=5000)

    run(test)


def test_after_a_failure_it_is_asked_again_where_to_go() -> None:
    async def test(stage: Stage) -> None:
        await stage.client.where()
        await stage.die()
        with pytest.raises(NotAnswered):
            await stage.client.prompt(BODY, "0.1")
        with pytest.raises(NotAnswered):
            await stage.client.where()

    run(test)


def test_only_this_run_is_answered() -> None:
    async def test(stage: Stage) -> None:
        stranger = PromptClient("cell-0", lambda cell: stage.url, "other")
        with pytest.raises(NotAnswered, match="401"):
            await stranger.where()
        await stranger.close()

    run(test)


def test_a_body_that_is_none_is_refused_by_its_field() -> None:
    async def test(stage: Stage) -> None:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.post(f"{stage.url}/pd/prompt", data=b"\x81\xa4body\x01") as response,
        ):
            assert response.status == 400 and "Prompt" in await response.text()

    run(test)


def test_an_answer_says_a_label_or_a_reason() -> None:
    encoded = msgspec.msgpack.encode(Computed(label="0.1"))
    assert read_computed(BEAT * 7 + encoded) == Computed(label="0.1")
    for wrong in (b"", BEAT, msgspec.msgpack.encode(Computed()), msgspec.msgpack.encode(Computed(label="0.1", reason="no")), encoded[:-1]):
        with pytest.raises(BadBody):
            read_computed(wrong)
