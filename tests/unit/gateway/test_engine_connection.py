"""The engines' HTTP: however the bytes are cut, the body is what was framed; what breaks off is never taken for whole."""

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.gateway.engine_connection import Broken, EngineConnection, EnginePool, Origin


class Wire(asyncio.Transport):
    """Where a connection writes to."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.is_aborted = False

    def writelines(self, pieces: Any) -> None:
        self.sent += b"".join(pieces)

    def abort(self) -> None:
        self.is_aborted = True


def connected() -> tuple[EngineConnection, Wire]:
    connection, wire = EngineConnection(), Wire()
    connection.connection_made(wire)
    return connection, wire


async def answered(connection: EngineConnection, parts: list[bytes]) -> bytes:
    """The whole body of one answer that arrives in these parts."""
    connection.ask(b"POST", b"body")
    for part in parts:
        connection.data_received(part)
    body = b""
    while data := await connection.read():
        body += data
    return body


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[begin:end] for begin, end in itertools.pairwise(edges) if begin < end]


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.lists(st.integers(0, 10_000), max_size=12), st.booleans())
def test_a_body_is_the_same_however_it_was_cut(content: list[bytes], places: list[int], trailer: bool) -> None:
    chunks = b"".join(b"%x;a=b\r\n%s\r\n" % (len(piece), piece) for piece in content)
    last = b"0\r\n" + (b"X-Sum: 1\r\n" if trailer else b"") + b"\r\n"
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + last
    whole = b"".join(content)
    sized = b"HTTP/1.1 409 Conflict\r\nContent-Length: %d\r\n\r\n" % len(whole) + whole

    async def steps() -> None:
        connection, wire = connected()
        for answer, status in ((chunked, 200), (sized, 409), (chunked, 200)):
            assert await answered(connection, cut(answer, places)) == whole
            assert (connection.status, connection.is_idle, wire.is_aborted) == (status, True, False)

    asyncio.run(steps())


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\nhello",
        b"SSH-2.0-nothing\r\n\r\n",
        b"HTTP/1.1 200",
        b"",
    ],
)
def test_what_breaks_off_or_is_no_http_is_broken(answer: bytes) -> None:
    async def steps() -> None:
        connection, _ = connected()
        connection.ask(b"POST", b"")
        connection.data_received(answer)
        connection.connection_lost(None)
        with pytest.raises(Broken):
            while await connection.read():
                pass
        assert not connection.is_idle

    asyncio.run(steps())


def test_an_answer_without_a_size_ends_with_the_connection() -> None:
    async def steps() -> None:
        connection, _ = connected()
        connection.ask(b"POST", b"")
        connection.data_received(b"HTTP/1.0 503 No\r\n\r\nbusy")
        assert await connection.read() == b"busy"
        connection.connection_lost(None)
        assert await connection.read() == b""
        assert not connection.is_idle

    asyncio.run(steps())


def test_only_connections_whose_answer_is_complete_are_used_again() -> None:
    async def steps() -> None:
        pool, origin = EnginePool(), Origin.of("http://127.0.0.1:1/now")
        assert origin == Origin("127.0.0.1", 1, "/now")
        whole, _ = connected()
        assert await answered(whole, [b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"]) == b""
        pool.give_back(origin, whole)
        assert await pool.take(origin) is whole
        whole.ask(b"POST", b"")
        pool.give_back(origin, whole)
        last, wire = connected()
        await answered(last, [b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"])
        pool.give_back(origin, last)
        assert wire.is_aborted
        lost, _ = connected()
        pool.give_back(origin, lost)
        lost.connection_lost(None)
        with pytest.raises(OSError):
            await pool.take(origin)

    asyncio.run(steps())


def test_nothing_is_kept_of_engines_that_are_gone() -> None:
    async def steps() -> None:
        server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()[:2]
        pool, here = EnginePool(), Origin.of(f"http://{host}:{port}")
        for start in range(20):
            gone, _ = connected()
            pool.give_back(Origin.of(f"http://127.0.0.1:{start + 1}"), gone)
            gone.connection_lost(None)
            (await pool.take(here)).close()
        assert pool.num_idle == 0
        server.close()

    asyncio.run(steps())
