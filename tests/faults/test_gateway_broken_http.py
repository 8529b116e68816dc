"""What is hardly HTTP, or ends in the middle of it: refused or dropped, never a 5xx, and a client that left is not worked for."""

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.fakes.gateway_world import EXECUTION, InTurn, World, small_config, spelled, until, world
from tests.fakes.spoken import CHAT, PROTOCOLS, Spoken, is_serving, key

GOOD = orjson.dumps(CHAT.body())
LINE = f"POST /e/{EXECUTION}/v1/chat/completions HTTP/1.1".encode()
KEY = b"Authorization: " + key()["Authorization"].encode()


def request(*headers: bytes, line: bytes = LINE, body: bytes = GOOD, length: bool = True) -> bytes:
    lines = [line, b"Host: gateway", KEY, *headers, *([b"Content-Length: %d" % len(body)] if length else [])]
    return b"\r\n".join([*lines, b"", body])


REQUESTS = {
    "no HTTP": b"\r\n\r\nhello\r\n\r\n",
    "TLS": bytes.fromhex("160301020001000100"),
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "no length": request(length=False),
    "two lengths": request(b"Content-Length: 5"),
    "a negative length": request(b"Content-Length: -5", length=False),
    "an unknown transfer encoding": request(b"Transfer-Encoding: foo", length=False),
    "broken chunks": request(b"Transfer-Encoding: chunked", body=b"zz\r\nabc\r\n", length=False),
    "an unknown expectation": request(b"Expect: wonders"),
    "an encoding nobody knows": request(b"Content-Encoding: br"),
    "NUL in a header": request(b"X: a\0b"),
    "a header of 9 kB": request(b"X: " + b"a" * 9000),
    "500 headers": request(*(b"X-%d: a" % number for number in range(500))),
    "an unknown method": request(line=LINE.replace(b"POST", b"BREW")),
    "a path of 9 kB": request(line=LINE.replace(b"chat", b"a" * 9000)),
    "a path that is no text": request(line=LINE.replace(b"chat", b"%ff%00%zz")),
    "a path out of the execution": request(line=LINE.replace(b"chat", b"../../../messages")),
    "another method": request(line=LINE.replace(b"POST", b"GET")),
}


async def connect(here: World) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", int(here.url.rpartition(":")[2]))


@pytest.mark.parametrize("what", REQUESTS)
def test_what_is_hardly_http_is_refused(tmp_path: Path, what: str) -> None:
    async def run() -> None:
        async with world(tmp_path) as here:
            await here.engine(InTurn(spelled("ok")))
            here.route(0)
            reader, writer = await connect(here)
            writer.write(REQUESTS[what])
            top = await reader.readline()
            assert 400 <= int(top.split()[1]) < 500, top
            writer.close()
            assert not here.records()
            assert await is_serving(here)

    asyncio.run(run())


def test_headers_that_are_no_text_do_no_harm(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here:
            await here.engine(InTurn(spelled("ok")))
            here.route(0)
            for name in (b"X-Agent-Id", b"X-Claude-Code-Agent-Id", b"thread-id", b"User-Agent", b"anthropic-version", b"X"):
                reader, writer = await connect(here)
                writer.write(request(name + b": \xff\xfe\xed\xa0\xbd"))
                assert int((await reader.readline()).split()[1]) == 200, name
                writer.close()

    asyncio.run(run())


@pytest.mark.parametrize("spoken", PROTOCOLS, ids=lambda spoken: spoken.name)
@pytest.mark.parametrize("is_chunked", [False, True], ids=["length", "chunked"])
def test_a_client_that_leaves_within_its_body_leaves_nothing_behind(tmp_path: Path, spoken: Spoken, is_chunked: bool) -> None:
    async def run() -> None:
        async with world(tmp_path, small_config()) as here:
            await here.engine(InTurn(spelled("ok")))
            here.route(0)
            serving: Any = here.gateway.host._serving
            server = serving._runner.server
            line = f"POST /e/{EXECUTION}/v1/{spoken.path} HTTP/1.1".encode()
            for half in (b"", orjson.dumps(spoken.body())[:20]):
                _, writer = await connect(here)
                if is_chunked:
                    writer.write(request(b"Transfer-Encoding: chunked", line=line, body=b"64\r\n" + half, length=False))
                else:
                    writer.write(request(b"Content-Length: 100", line=line, body=half, length=False))
                await until(lambda: server.connections, "the gateway reads")
                writer.close()
                await until(lambda: not server.connections, "it lets go of it")
            assert not here.gateway._connections._open
            assert not here.records()
            assert await is_serving(here)

    asyncio.run(run())
