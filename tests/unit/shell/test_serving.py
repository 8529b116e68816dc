"""A connection must say what it wants in time; one that did is served as long as it likes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from gyre_hpc.ports import listen
from gyre_hpc.shell.serving import Serving

HEAD = b"GET / HTTP/1.1\r\nHost: here\r\n"


@contextlib.asynccontextmanager
async def serving(gate: asyncio.Event, head_s: float) -> AsyncIterator[int]:
    async def answer(request: web.Request) -> web.Response:
        await gate.wait()
        return web.Response(text="served")

    app = web.Application()
    app.router.add_get("/", answer)
    server = Serving(app, head_s=head_s)
    url = await server.start(listen("127.0.0.1"))
    try:
        yield int(url.rpartition(":")[2])
    finally:
        await server.close()


@pytest.mark.parametrize("said", [b"", HEAD, b"GET /"])
def test_a_connection_that_makes_no_request_is_ended(said: bytes) -> None:
    async def steps() -> None:
        async with serving(asyncio.Event(), 0.01) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(said)
            assert await reader.read() == b""
            writer.close()

    asyncio.run(steps())


def test_a_request_may_take_longer_than_a_newcomer_and_its_connection_stays() -> None:
    """Decided by a later newcomer: when that one's time is over, the first one's is too."""

    async def steps() -> None:
        gate = asyncio.Event()
        async with serving(gate, 0.2) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HEAD + b"\r\n")
            await writer.drain()
            late, other = await asyncio.open_connection("127.0.0.1", port)
            assert await late.read() == b""
            gate.set()
            for _ in range(2):
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
                assert await reader.readexactly(6) == b"served"
                writer.write(HEAD + b"\r\n")
            writer.close()
            other.close()

    asyncio.run(steps())


def test_closing_ends_connections_that_wait_to_ask() -> None:
    async def steps() -> None:
        async with serving(asyncio.Event(), 600.0) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HEAD)
            await writer.drain()
        assert await reader.read() == b""
        writer.close()

    asyncio.run(steps())
