"""Micro-batches come from the controller by HTTP and wait here, as bytes, for the trainer."""

import aiohttp

from gyre_hpc.errors import TransferFailed


class MicroBatches:
    """Fetched and not yet accumulated, by id."""

    def __init__(self, run_token: str) -> None:
        self._headers = {"Authorization": f"Bearer {run_token}"}
        self._session: aiohttp.ClientSession | None = None
        self._held: dict[str, bytes] = {}

    async def fetch(self, id: str, url: str, keep: tuple[str, ...], deadline_s: float) -> None:
        """Hold the micro-batch; forget all but `keep` and it. Raises TransferFailed."""
        data = await self.get(url, deadline_s)
        self._held = {held: bytes_ for held, bytes_ in self._held.items() if held in keep} | {id: data}

    async def get(self, url: str, deadline_s: float) -> bytes:
        """Raises TransferFailed with the status or the reason."""
        if self._session is None:
            self._session = aiohttp.ClientSession(headers=self._headers)
        try:
            async with self._session.get(url, timeout=aiohttp.ClientTimeout(total=deadline_s)) as response:
                if response.status != 200:
                    raise TransferFailed(f"GET {url}: HTTP {response.status}: {(await response.text())[:200]}")
                return await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise TransferFailed(f"GET {url}: {error or type(error).__name__}") from error

    def take(self, id: str) -> bytes:
        """Hand it over to the trainer. Raises KeyError if it was not fetched."""
        return self._held.pop(id)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
