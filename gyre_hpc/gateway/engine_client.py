"""EngineAttempt on the wire: one streaming POST /generate. Errors say what the machine can act on, nothing is tried twice."""

from collections.abc import Callable
from typing import Any

from gyre_hpc.errors import CellLost, EngineBusy, GyreError
from gyre_hpc.gateway.engine_connection import EngineConnection, EnginePool, Origin
from gyre_hpc.gateway.engine_stream import EngineStream, generate_body
from gyre_hpc.gateway.ids_text import IdsText
from gyre_hpc.machines.call.actions import AttemptEnd, EngineAttempt
from gyre_hpc.shell.timers import within

CONNECT_S = 5.0


class EngineRefused(GyreError):
    """The engine finds the request wrong in itself."""


class EngineClient:
    """All attempts of one gateway."""

    def __init__(self, run_token: str) -> None:
        self._bearer = run_token
        self._pool, self._ids_text = EnginePool(), IdsText()

    async def close(self) -> None:
        self._pool.close()

    def forget(self, execution: str) -> None:
        """It takes no more calls."""
        self._ids_text.forget(execution)

    async def attempt(self, key: str, action: EngineAttempt, progress: Callable[[Any], None]) -> AttemptEnd:
        """Raises EngineBusy (gate closed), CellLost (no or half an answer, deadline missed), EngineRefused."""
        origin, body = Origin.of(action.url), generate_body(key, action, self._ids_text)
        try:
            async with within(action.deadline_s):
                connection = await self._connection(origin)
                try:
                    connection.ask(self._head(origin, action.term, len(body)), body)
                    return await _read(connection, EngineStream(action), progress)
                finally:
                    # One that waits for more is closed: so the engine learns that nobody does.
                    self._pool.give_back(origin, connection)
        except (TimeoutError, OSError) as error:
            raise CellLost(f"{action.cell}: {type(error).__name__} {error}") from error

    async def _connection(self, origin: Origin) -> EngineConnection:
        async with within(CONNECT_S):
            return await self._pool.take(origin)

    def _head(self, origin: Origin, term: int, size: int) -> bytes:
        return (
            f"POST {origin.path}/generate HTTP/1.1\r\nHost: {origin.host}:{origin.port}\r\nAuthorization: Bearer {self._bearer}\r\n"
            f"X-Gyre-Term: {term}\r\nContent-Type: application/json\r\nAccept: */*\r\nContent-Length: {size}\r\n\r\n"
        ).encode()


async def _read(connection: EngineConnection, stream: EngineStream, progress: Callable[[Any], None]) -> AttemptEnd:
    refusal = b""
    while data := await connection.read():
        if connection.status != 200:
            refusal += data
            continue
        for tokens in stream.feed(data):
            progress(tokens)
    if connection.status != 200:
        raise _error(connection.status, refusal.decode("utf-8", "replace")[:300])
    if stream.is_refused:
        raise EngineRefused(stream.error)
    if stream.finish is None:
        raise CellLost(f"the answer broke off: {stream.error or 'end of stream without a finish reason'}")
    return AttemptEnd(str(stream.finish["type"]), stream.digest, stream.moved_to)


def _error(status: int, text: str) -> GyreError:
    if status == 409:
        return EngineBusy(text)
    return EngineRefused(f"{status}: {text}") if 400 <= status < 500 else CellLost(f"{status}: {text}")
