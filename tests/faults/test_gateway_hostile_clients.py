"""Clients that take and never give: bodies without end, connections without requests, answers nobody reads. Others are served."""

import asyncio
import gzip
import os
import resource
import socket
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from gyre_hpc.machines.base import TimerFired
from tests.fakes.gateway_process import GatewayProcess
from tests.fakes.gateway_world import EXECUTION, InTurn, World, small_config, spelled, until, world
from tests.fakes.spoken import CHAT, PROTOCOLS, Spoken, is_serving, key, post, text_of

MB = 1 << 20
ALL = pytest.mark.parametrize("spoken", PROTOCOLS, ids=lambda spoken: spoken.name)


def live(folder: Path, steps: Callable[[World], Awaitable[None]], answers: Any = None, **gateway: Any) -> None:
    async def run() -> None:
        async with world(folder, small_config(**gateway)) as here:
            await here.engine(answers or InTurn(spelled("ok")))
            here.route(0)
            await steps(here)
            assert await is_serving(here)
            assert not here.gateway.host.ended.done()

    asyncio.run(run())


def head(spoken: Spoken, *more: str, length: int | None = None) -> bytes:
    """Request line and headers."""
    lines = [
        f"POST /e/{EXECUTION}/v1/{spoken.path} HTTP/1.1",
        "Host: gateway",
        *(f"{name}: {value}" for name, value in key().items()),
        *more,
    ]
    if length is not None:
        lines.append(f"Content-Length: {length}")
    return "\r\n".join([*lines, "", ""]).encode()


async def connect(here: World) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = here.url.removeprefix("http://").partition(":")
    return await asyncio.open_connection(host, int(port))


async def response(reader: asyncio.StreamReader) -> tuple[int, dict[str, Any]]:
    """Status and body of the next response."""
    top = await reader.readuntil(b"\r\n\r\n")
    length = int(top.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return int(top.split()[1]), orjson.loads(await reader.readexactly(length))


def resident_mb(pid: int = os.getpid()) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / MB


@ALL
@pytest.mark.parametrize("is_chunked", [False, True], ids=["length", "chunked"])
def test_a_body_of_200_mb_is_refused_while_it_comes(tmp_path: Path, spoken: Spoken, is_chunked: bool) -> None:
    """A client that sends all of it before it reads finds a 413 and no reset; memory does not grow by what it sends."""
    piece = b"100000\r\n" + b" " * MB + b"\r\n" if is_chunked else b" " * MB
    begin = head(spoken, "Transfer-Encoding: chunked") if is_chunked else head(spoken, length=200 * MB)

    async def steps(here: World) -> None:
        before, most = resident_mb(), 0.0
        reader, writer = await connect(here)
        writer.write(begin)
        for _ in range(200):
            writer.write(piece)
            await writer.drain()
            most = max(most, resident_mb())
        writer.write(b"0\r\n\r\n" if is_chunked else b"")
        status, body = await response(reader)
        assert (status, spoken.error(body)) == (413, f"body: larger than {MB} bytes (gateway.max_body_bytes)")
        # Buffers of both ends of the connection are in this process.
        assert most - before < 40
        writer.close()

    live(tmp_path, steps, max_body_bytes=MB)


@ALL
def test_what_unpacks_to_more_than_the_limit_is_refused(tmp_path: Path, spoken: Spoken) -> None:
    bomb = gzip.compress(b" " * (200 * MB))

    async def steps(here: World) -> None:
        before = resident_mb()
        status, data = await post(here, spoken, bomb, headers=key() | {"Content-Encoding": "gzip"})
        assert status == 413
        assert spoken.error(orjson.loads(data))
        assert resident_mb() - before < 40

    live(tmp_path, steps, max_body_bytes=MB)


@ALL
def test_a_body_that_is_not_encoded_as_it_says_is_refused(tmp_path: Path, spoken: Spoken) -> None:
    async def steps(here: World) -> None:
        status, data = await post(here, spoken, spoken.body(), headers=key() | {"Content-Encoding": "gzip"})
        assert (status, spoken.error(orjson.loads(data)).startswith("body: ")) == (400, True)
        packed = gzip.compress(orjson.dumps(spoken.body()))
        assert (await post(here, spoken, packed, headers=key() | {"Content-Encoding": "gzip"}))[0] == 200

    live(tmp_path, steps)


@ALL
def test_a_body_that_comes_byte_by_byte_has_a_deadline(tmp_path: Path, spoken: Spoken) -> None:
    async def steps(here: World) -> None:
        reader, writer = await connect(here)
        writer.write(head(spoken, length=1000) + b"{")
        answered = asyncio.create_task(response(reader))
        num_sent = 0
        while not answered.done():
            num_sent += 1
            writer.write(b" ")
            await asyncio.sleep(0.02)
        status, body = await answered
        assert (status, "gateway.body_deadline_s" in spoken.error(body)) == (408, True)
        assert 1 < num_sent < 999
        writer.close()

    live(tmp_path, steps, body_deadline_s=0.3)


def test_a_thousand_idle_connections_do_not_stop_the_others(tmp_path: Path) -> None:
    """Although a process may open fewer files by default: a shard takes what the machine allows."""
    own = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (own[1], own[1]))

    async def run() -> None:
        here = GatewayProcess(tmp_path, small_config())
        here.wrapper = ("sh", "-c", 'ulimit -S -n 512 && exec "$@"', "sh")
        await here.start()
        try:
            await here.engine(InTurn(spelled("ok")))
            await here.tell(0)
            before = resident_mb(here.process.pid)
            idle = await asyncio.gather(*(connect(here) for _ in range(1000)))
            for _, writer in idle[::2]:
                # Half of them say a little, and then nothing.
                writer.write(head(CHAT, length=10)[:40])
            assert await is_serving(here)
            assert resident_mb(here.process.pid) - before < 50
            for _, writer in idle:
                writer.close()
        finally:
            await here.close()

    try:
        asyncio.run(run())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, own)


@ALL
def test_a_client_that_never_reads_is_hung_up_on_when_its_call_is_over(tmp_path: Path, spoken: Spoken) -> None:
    """Nothing else waits for it: no other client, not its cell for longer than a call may live; the gateway holds a buffer of bytes."""
    answer = spelled("words that nobody reads")

    async def steps(here: World) -> None:
        here.engines[0].faults = ["hang:6"]
        shrink_buffers(here)
        deaf = socket.socket()
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(("127.0.0.1", int(here.url.rpartition(":")[2])))
        body = orjson.dumps(spoken.body(stream=True))
        deaf.sendall(head(spoken, length=len(body)) + body)
        await until(lambda: here.gateway._connections._open, "it is connected")
        (connection,) = here.gateway._connections._open.values()
        transport: Any = connection._request.transport
        await until(lambda: transport.get_write_buffer_size() > 64 << 10, "its buffers are full of keep-alives")
        assert await is_serving(here)
        here.gateway.host.tell(TimerFired(f"deadline/{EXECUTION}/0"))
        await until(lambda: [end for end in here.ends() if end.finish == "failed"], "its call ends by its deadline")
        assert transport.get_write_buffer_size() < 200_000
        shard: Any = here.gateway.host._machine._shard  # type: ignore[union-attr]
        await until(lambda: not shard.conns and not here.gateway._connections._open, "it is hung up on")
        assert transport.is_closing()
        deaf.close()
        # Whoever asks for it again, and reads, gets all of it; what was sampled is not sampled anew.
        assert text_of(spoken, (await post(here, spoken, spoken.body(stream=True)))[1]) == bytes(answer[:-1]).decode()
        assert here.engines[0].requests[-1]["sampling_params"]["custom_params"]["position"] == 6

    live(tmp_path, steps, InTurn(answer, spelled("ok")), keepalive_s=0.001, unread_s=0.2)


def shrink_buffers(here: World) -> None:
    """The kernel keeps little of what the gateway sends."""
    serving: Any = here.gateway.host._serving
    for listening in serving._listening.sockets:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)


@ALL
@pytest.mark.parametrize("what", ["messages", "tools"])
def test_a_long_prompt_does_not_hold_up_the_others(tmp_path: Path, spoken: Spoken, what: str) -> None:
    """Rendering 16 MB takes seconds: they pass beside the loop, also when their tokens are only counted."""
    begun, is_served = threading.Event(), threading.Event()

    def slowly(messages: Any, tools: Any) -> list[int]:
        if len(str(messages)) + len(str(tools)) > 100_000:
            begun.set()
            assert is_served.wait(20), "nobody else was served meanwhile"
        return [1, 2, 3]

    text = "x" * 200_000
    body = spoken.body(text) if what == "messages" else spoken.body(tools=[spoken.tool | {"description": text}])
    if what == "tools" and spoken is CHAT:
        body["tools"] = [{"type": "function", "function": CHAT.tool["function"] | {"description": text}}]
    paths = [spoken.path, "messages/count_tokens"] if spoken.name == "messages" else [spoken.path]

    async def steps(here: World) -> None:
        here.gateway._chat_format.render = slowly  # type: ignore[method-assign]
        for path in paths:
            begun.clear()
            is_served.clear()
            url = f"{here.url}/e/{EXECUTION}/v1/{path}"
            slow = asyncio.create_task(post(here, spoken, body, url=url))
            await until(begun.is_set, "it is being rendered")
            assert await is_serving(here)
            assert not slow.done()
            is_served.set()
            assert (await slow)[0] == 200

    live(tmp_path, steps)
