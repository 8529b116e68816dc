"""The source's side of /kv/...: what another cell says is checked, and everything that goes wrong is TransferFailed."""

import io
from collections.abc import Callable

import aiohttp
import msgspec

from gyre_hpc.cell.kv_wire import MAX_BODY_BYTES, Ask, BadBody, Body, Drop, Room, Take, Taken, check_room, decode, encode
from gyre_hpc.errors import TransferFailed


class KvClient:
    """address_of: base URL of a cell's process, None while it is unknown."""

    def __init__(self, address_of: Callable[[str], str | None], run_token: str) -> None:
        self._address_of = address_of
        self._headers = {"Authorization": f"Bearer {run_token}"}
        self._session: aiohttp.ClientSession | None = None

    async def ask(self, cell: str, ask: Ask) -> Room:
        """Raises TransferFailed."""
        data = await self._post(cell, "/kv/wanted", ask, ask.deadline_s)
        return _answer(cell, Room, data, lambda room: check_room(room, ask.blocks))

    async def take(self, cell: str, take: Take) -> Taken:
        """Raises TransferFailed."""

        def check(taken: Taken) -> str:
            outside = [place for place in taken.published if place < 0 or place >= take.end]
            return f"published: {outside[0]} was not offered yet" if outside else ""

        return _answer(cell, Taken, await self._post(cell, "/kv/take", take, take.deadline_s), check)

    async def tell(self, cell: str, drop: Drop, deadline_s: float) -> None:
        """A target that cannot be told finds out by its own deadline."""
        try:
            await self._post(cell, "/kv/drop", drop, deadline_s)
        except TransferFailed:
            return

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _post(self, cell: str, path: str, body: msgspec.Struct, deadline_s: float) -> bytes:
        url = self._address_of(cell)
        if url is None:
            raise TransferFailed(f"{cell} has no address yet")
        if self._session is None:
            self._session = aiohttp.ClientSession(headers=self._headers, connector=aiohttp.TCPConnector(limit=0))
        try:
            timeout = aiohttp.ClientTimeout(total=deadline_s)
            async with self._session.post(url + path, data=io.BytesIO(encode(body)), timeout=timeout) as response:
                data = await _all_of(response, cell)
                if response.status != 200:
                    raise TransferFailed(f"{cell} answered HTTP {response.status}: {data[:200].decode(errors='replace')}")
                return data
        except TimeoutError as error:
            raise TransferFailed(f"{cell} did not answer {path} within {deadline_s:.3g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise TransferFailed(f"{cell}: {error or type(error).__name__}") from error


async def _all_of(response: aiohttp.ClientResponse, cell: str) -> bytes:
    data = bytearray()
    async for part in response.content.iter_any():
        data += part
        if len(data) > MAX_BODY_BYTES:
            raise TransferFailed(f"{cell} answered more than {MAX_BODY_BYTES} bytes")
    return bytes(data)


def _answer(cell: str, kind: type[Body], data: bytes, check: Callable[[Body], str]) -> Body:
    try:
        return decode(kind, data, check)
    except BadBody as error:
        raise TransferFailed(f"{cell} answered nonsense: {error}") from error
