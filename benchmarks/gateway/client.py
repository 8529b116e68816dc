"""The load client: closed loop over keep-alive connections, every request made anew, one thread.

Runs on the core of the stub. Its own cost per call is in the floor (the same client straight at the stub).
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

Requests = Callable[[], bytes]
"""Makes the next request: head and body."""


def post(path: str, body: bytes, token: str, extra: str = "") -> bytes:
    """HTTP/1.1 POST with a bearer token."""
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n{extra}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


@dataclass(kw_only=True, slots=True)
class Window:
    """What one stretch of load gave."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    errors: int = 0
    last: bytes = b""
    """Body of the newest answer."""

    @property
    def rate(self) -> float:
        return len(self.latencies) / max(self.seconds, 1e-9)


class Connection(asyncio.Protocol):
    """Sends, waits for the whole answer, hands it on."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size, self._need = 0, 0
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """(status, body as it is on the wire). Raises ConnectionError."""
        self._parts, self._size, self._need = [], 0, 0
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def data_received(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._answer is None or self._size < self._need:
            return
        whole = b"".join(self._parts)
        self._parts = [whole]
        head, end, body = whole.partition(b"\r\n\r\n")
        if not end:
            return
        place = head.lower().find(b"content-length:")
        if place >= 0:
            self._need = len(head) + 4 + int(head[place + 15 :].split(b"\r\n", 1)[0])
            if self._size < self._need:
                return
        elif not body.endswith(b"0\r\n\r\n"):
            return
        if not self._answer.done():
            self._answer.set_result((int(head[9:12]), body))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionResetError("connection closed before the answer"))

    def close(self) -> None:
        self._transport.close()


async def connect(port: int) -> Connection:
    _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", port)
    return connection


async def load(port: int, requests: Requests, connections: int, seconds: float) -> Window:
    """Keep `connections` busy for `seconds`; what is under way then is waited for and not counted."""
    window, begin = Window(seconds=seconds), time.perf_counter()
    open = [await connect(port) for _ in range(connections)]

    async def work(connection: Connection) -> None:
        while (start := time.perf_counter()) - begin < seconds:
            try:
                status, window.last = await connection.ask(requests())
            except ConnectionError:
                window.errors += 1
                return
            window.errors += status != 200
            window.latencies.append(time.perf_counter() - start)

    await asyncio.gather(*map(work, open))
    window.seconds = time.perf_counter() - begin
    for connection in open:
        connection.close()
    return window
