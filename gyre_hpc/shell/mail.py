"""Send: one POST per message to the address the directory names. Failures are dropped: machines send again."""

import asyncio
import logging

import aiohttp

from gyre_hpc.protocol.envelope import Envelope, Message, encode
from gyre_hpc.protocol.supervision import Directory
from gyre_hpc.shell.traffic import Traffic

MOST_AT_ONCE = 8
"""Posts to one receiver. The library uses the connections it keeps in turn, so that none is ever idle for long enough to be closed: without
a limit each burst would leave some more of them, for as long as the run lasts."""
log = logging.getLogger(__name__)


class Mail:
    """Outgoing messages of one process."""

    def __init__(self, *, sender: str, attempt: int, run_token: str, addresses: dict[str, str], traffic: Traffic | None = None) -> None:
        self._traffic = traffic or Traffic()
        self._sender, self._attempt = sender, attempt
        self._addresses = dict(addresses)
        self._fixed = dict(addresses)
        self._headers = {"Authorization": f"Bearer {run_token}", "Content-Type": "application/json"}
        self._session: aiohttp.ClientSession | None = None
        self._directory = -1
        self._encoded: tuple[Message | None, bytes] = None, b""
        """The newest message and its bytes."""
        self._posts: set[asyncio.Task[None]] = set()
        self.superseded: str = ""
        """Non-empty once a receiver said that a newer attempt of the run lives."""

    def learn(self, directory: Directory) -> None:
        """Take the addresses of a newer directory."""
        if directory.number <= self._directory:
            return
        self._directory = directory.number
        self._addresses = self._fixed | {entry.process: entry.url for entry in directory.entries if entry.url}

    def address(self, process: str) -> str | None:
        return self._addresses.get(process)

    def send(self, to: str, message: Message, deadline_s: float) -> None:
        """Post without waiting for the answer. Unknown receivers get nothing: they have not registered yet."""
        url = self._addresses.get(to)
        if url is None:
            return
        if message is not self._encoded[0]:
            # One for many is told to each in turn.
            self._encoded = message, encode(Envelope(self._sender, self._attempt, message))
        body = self._encoded[1]
        self._traffic.sent(message, len(body))
        task = asyncio.get_running_loop().create_task(self._post(f"{url}/messages", body, deadline_s))
        self._posts.add(task)
        task.add_done_callback(self._posts.discard)

    async def close(self) -> None:
        for task in self._posts:
            task.cancel()
        if self._session is not None:
            await self._session.close()

    async def _post(self, url: str, body: bytes, deadline_s: float) -> None:
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, limit_per_host=MOST_AT_ONCE))
        try:
            timeout = aiohttp.ClientTimeout(total=deadline_s)
            async with self._session.post(url, data=body, headers=self._headers, timeout=timeout) as response:
                if response.status == 409:
                    self.superseded = await response.text()
                elif response.status != 204:
                    log.warning("%s answered %s: %s", url, response.status, (await response.text())[:200])
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            log.debug("post to %s failed: %s", url, error)
