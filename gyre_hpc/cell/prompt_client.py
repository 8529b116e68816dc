"""The cell that prefills, seen from the one that decodes: a Prefill over HTTP. Whatever goes wrong there is NotAnswered, within a deadline."""

import io
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp
import msgspec

from gyre_hpc.cell.kv_wire import MAX_BODY_BYTES, BadBody
from gyre_hpc.cell.prompt_wire import LONGEST_S, SILENCE_S, Prompt, read_computed, read_found
from gyre_hpc.engines.sglang.parts import Bootstrap, NotAnswered, Refused

CONNECT_S = 5.0
_WHERE_S = 5.0


class PromptClient:
    """cell: the one that prefills. address_of: base URL of a cell's process, None while it is unknown."""

    def __init__(self, cell: str, address_of: Callable[[str], str | None], run_token: str, *, silence_s: float = SILENCE_S) -> None:
        self._cell, self._address_of, self._silence_s = cell, address_of, silence_s
        self._headers = {"Authorization": f"Bearer {run_token}"}
        self._session: aiohttp.ClientSession | None = None
        self._known: tuple[str, Bootstrap] | None = None
        """(URL of the process that said so, what it said)."""

    async def where(self) -> Bootstrap:
        """Asked once of each process: the next one has another URL. Raises NotAnswered."""
        url = self._url()
        if self._known is not None and self._known[0] == url:
            return self._known[1]
        data = await self._ask("GET", url + "/pd/where", None, aiohttp.ClientTimeout(total=_WHERE_S))
        try:
            found = read_found(data)
        except BadBody as error:
            raise self._error(f"answered nonsense: {error}") from error
        self._known = (url, Bootstrap(host=found.host, port=found.port))
        return self._known[1]

    async def prompt(self, body: Mapping[str, Any], version: str) -> str:
        """See Prefill."""
        timeout = aiohttp.ClientTimeout(total=LONGEST_S, sock_connect=CONNECT_S, sock_read=self._silence_s)
        data = await self._ask("POST", self._url() + "/pd/prompt", msgspec.msgpack.encode(Prompt(dict(body), version)), timeout)
        try:
            computed = read_computed(data)
        except BadBody as error:
            raise self._error(f"answered nonsense: {error}") from error
        if computed.label:
            return computed.label
        raise (Refused if computed.is_refused else NotAnswered)(computed.reason)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _url(self) -> str:
        url = self._address_of(self._cell)
        if url is None:
            raise self._error("has no address yet")
        return url

    async def _ask(self, method: str, url: str, body: bytes | None, timeout: aiohttp.ClientTimeout) -> bytes:
        if self._session is None:
            self._session = aiohttp.ClientSession(headers=self._headers, connector=aiohttp.TCPConnector(limit=0))
        try:
            data = None if body is None else io.BytesIO(body)
            async with self._session.request(method, url, data=data, timeout=timeout) as response:
                answer = await self._all_of(response)
                if response.status != 200:
                    raise self._error(f"answered HTTP {response.status}: {answer[:200].decode(errors='replace')}")
                return answer
        except TimeoutError as error:
            raise self._error("does not answer") from error
        except (aiohttp.ClientError, OSError) as error:
            raise self._error(str(error) or type(error).__name__) from error

    async def _all_of(self, response: aiohttp.ClientResponse) -> bytes:
        data = bytearray()
        async for part in response.content.iter_any():
            data += part
            if len(data) > MAX_BODY_BYTES:
                raise self._error(f"answered more than {MAX_BODY_BYTES} bytes")
        return bytes(data)

    def _error(self, reason: str) -> NotAnswered:
        self._known = None
        return NotAnswered(f"{self._cell}, which prefills: {reason}")
