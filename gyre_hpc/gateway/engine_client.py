"""EngineAttempt on the wire: one streaming POST /generate. Errors say what the machine can act on, nothing is tried twice."""

from collections.abc import Callable
from typing import Any

import aiohttp

from gyre_hpc.errors import CellLost, EngineBusy, GyreError
from gyre_hpc.gateway.engine_stream import EngineStream, generate_body
from gyre_hpc.machines.call.actions import AttemptEnd, EngineAttempt

CONNECT_S = 5.0


class EngineRefused(GyreError):
    """The engine finds the request wrong in itself."""


class EngineClient:
    """All attempts of one gateway."""

    def __init__(self, run_token: str) -> None:
        self._bearer = f"Bearer {run_token}"
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), auto_decompress=False)

    async def close(self) -> None:
        await self._session.close()

    async def attempt(self, key: str, action: EngineAttempt, progress: Callable[[Any], None]) -> AttemptEnd:
        """Raises EngineBusy (gate closed), CellLost (no or half an answer, deadline missed), EngineRefused."""
        headers = {"Authorization": self._bearer, "X-Gyre-Term": str(action.term), "Content-Type": "application/json"}
        timeout = aiohttp.ClientTimeout(total=action.deadline_s, sock_connect=CONNECT_S)
        url, body = f"{action.url}/generate", generate_body(key, action)
        try:
            async with self._session.post(url, data=body, headers=headers, timeout=timeout) as response:
                if response.status != 200:
                    raise _error(response.status, (await response.text())[:300])
                return await _read(response, EngineStream(action), progress)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise CellLost(f"{action.cell}: {type(error).__name__} {error}") from error


async def _read(response: aiohttp.ClientResponse, stream: EngineStream, progress: Callable[[Any], None]) -> AttemptEnd:
    async for data in response.content.iter_any():
        for tokens in stream.feed(data):
            progress(tokens)
    if stream.finish is None:
        raise CellLost(f"the answer broke off: {stream.error or 'end of stream without a finish reason'}")
    return AttemptEnd(str(stream.finish["type"]), stream.digest)


def _error(status: int, text: str) -> GyreError:
    if status == 409:
        return EngineBusy(text)
    return EngineRefused(f"{status}: {text}") if 400 <= status < 500 else CellLost(f"{status}: {text}")
