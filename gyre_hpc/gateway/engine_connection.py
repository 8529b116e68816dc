"""HTTP/1.1 as far as a streamed POST /generate needs it: keep-alive connections, chunked or sized bodies.

A general client costs more CPU per call than the machine and the journal together (benchmarks/gateway); this one takes a whole read
apart at once. Nothing is tried twice: a connection that breaks fails its request, and one that was closed while idle is not used.
"""

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from urllib.parse import urlsplit

_MAX_HEAD = 64 << 10
_MOST_IDLE = 256
"""Connections kept open per engine while nothing is asked of it."""


class Broken(OSError):
    """No answer, half an answer, or one that is no HTTP."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an engine listens."""

    host: str
    port: int
    path: str
    """What its paths begin with."""

    @classmethod
    def of(cls, url: str) -> "Origin":
        parts = urlsplit(url)
        return cls(parts.hostname or "", parts.port or 80, parts.path)


class EngineConnection(asyncio.Protocol):
    """One connection; one request at a time. asyncio sets TCP_NODELAY."""

    def __init__(self) -> None:
        self.status = 0
        """Of the answer under way; 0 before its head came."""
        self._transport: asyncio.Transport
        self._is_closed = False
        self._is_over = True
        """The answer is complete."""
        self._failure: Exception | None = None
        self._head = b""
        self._body: _Body | None = None
        self._pieces: list[bytes] = []
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_idle(self) -> bool:
        """It can take a request."""
        return self._is_over and not self._is_closed

    def ask(self, head: bytes, body: bytes) -> None:
        """Send one request."""
        self.status, self._body, self._is_over, self._pieces = 0, None, False, []
        self._transport.writelines((head, body))

    async def read(self) -> bytes:
        """What came of the body since the last call; empty at its end. Raises Broken."""
        while not self._pieces and not self._is_over:
            if self._failure is not None:
                raise self._failure
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        pieces, self._pieces = self._pieces, []
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """An engine takes this for the end of the call under way."""
        self._is_closed = True
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closed = True
        if self._body is not None and self._body.ends_with_connection:
            self._is_over = True
        elif not self._is_over:
            self._failure = self._failure or Broken(f"connection closed before the answer was complete ({exc or 'by the engine'})")
        self._wake()

    def data_received(self, data: bytes) -> None:
        try:
            self._take(data)
        except ValueError as error:
            self._failure = Broken(f"no HTTP answer: {error}")
            self.close()
        self._wake()

    def _take(self, data: bytes) -> None:
        if self._is_over:
            raise ValueError("bytes that nobody asked for")
        if self._body is None:
            head, end, data = (self._head + data).partition(b"\r\n\r\n")
            if not end:
                if len(head) > _MAX_HEAD:
                    raise ValueError("its head has no end")
                self._head = head
                return
            self._head = b""
            self.status, self._body, closes = _read_head(head)
            if closes:
                self._is_closed = True
        self._is_over = self._body.take(data, self._pieces)

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


class _Body:
    """Takes the frames off a body."""

    def __init__(self, size: int | None, is_chunked: bool) -> None:
        """`size` None and not chunked: it ends with the connection."""
        self.ends_with_connection = size is None and not is_chunked
        self._left, self._is_chunked = size or 0, is_chunked
        self._buffer = b""

    def take(self, data: bytes, pieces: list[bytes]) -> bool:
        """Append content to `pieces`; True when the body is complete. Raises ValueError."""
        if self._is_chunked:
            return self._take_chunks(self._buffer + data, pieces)
        if data:
            pieces.append(data)
        self._left -= len(data)
        return self._left <= 0 and not self.ends_with_connection

    def _take_chunks(self, data: bytes, pieces: list[bytes]) -> bool:
        at = 0
        while (line_end := data.find(b"\r\n", at)) >= 0:
            size = int(data[at:line_end].partition(b";")[0], 16)
            begin, end = line_end + 2, line_end + 2 + size
            if size == 0 and data.find(b"\r\n\r\n", line_end) >= 0:
                # What follows is an empty line, or trailers and an empty line.
                return True
            if size == 0 or len(data) < end + 2:
                break
            pieces.append(data[begin:end])
            at = end + 2
        if line_end < 0 and len(data) - at > _MAX_HEAD:
            raise ValueError("the size of a chunk has no end")
        self._buffer = data[at:]
        return False


def _read_head(head: bytes) -> tuple[int, _Body, bool]:
    """(status, body, whether the connection is over afterwards). Raises ValueError."""
    line, *fields = head.decode("latin-1").split("\r\n")
    version, _, rest = line.partition(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError(f"its first line is {line[:80]!r}")
    headers = {name.strip().lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
    is_chunked = headers.get("transfer-encoding", "").lower() == "chunked"
    size = int(headers["content-length"]) if "content-length" in headers and not is_chunked else None
    closes = headers.get("connection", "").lower() == "close" or version == "HTTP/1.0"
    return int(rest[:3]), _Body(size, is_chunked), closes


class EnginePool:
    """Idle connections by origin."""

    def __init__(self) -> None:
        self._idle: defaultdict[Origin, list[EngineConnection]] = defaultdict(list)

    async def take(self, origin: Origin) -> EngineConnection:
        """An idle connection, or a new one. Raises OSError."""
        idle = self._idle[origin]
        while idle:
            connection = idle.pop()
            if connection.is_idle:
                return connection
        self._drop_closed()
        _, connection = await asyncio.get_running_loop().create_connection(EngineConnection, origin.host, origin.port)
        return connection

    def give_back(self, origin: Origin, connection: EngineConnection) -> None:
        """After a request: kept if its answer is complete, closed otherwise."""
        idle = self._idle[origin]
        if connection.is_idle and len(idle) < _MOST_IDLE:
            idle.append(connection)
        else:
            connection.close()

    def _drop_closed(self) -> None:
        """Each start of an engine has a port of its own: nobody asks for those of an earlier one any more."""
        left = {origin: [one for one in idle if one.is_idle] for origin, idle in self._idle.items()}
        self._idle = defaultdict(list, {origin: idle for origin, idle in left.items() if idle})

    @property
    def num_idle(self) -> int:
        """Connections that are kept."""
        return sum(map(len, self._idle.values()))

    def close(self) -> None:
        for idle in self._idle.values():
            for connection in idle:
                connection.close()
        self._idle.clear()
