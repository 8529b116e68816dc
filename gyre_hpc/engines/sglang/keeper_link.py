"""A leader's connection to a keeper. As long as it is open, the server is held."""

import asyncio
import contextlib
import os
import socket
from pathlib import Path
from typing import NamedTuple

import msgspec

from gyre_hpc.engines.sglang.keeper_wire import Ended, Hello, Hold, Lines, Message, Ready, Status, decode, encode
from gyre_hpc.engines.sglang.server_folder import socket_file
from gyre_hpc.observability.process_tree import Process, descendants, identify, is_alive

_ANSWER_S = 15.0
"""Of a keeper that is there; it asks the server first whether it is well."""


class Found(NamedTuple):
    """A keeper that was there already."""

    connection: socket.socket
    status: Status
    rest: bytes
    """What it said after its status."""


def find_keeper(folder: Path, digest: str) -> Found | None:
    """Blocks. None: there is no keeper, or one that does not answer. The connection holds the server if it is of that launch."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(_ANSWER_S)
        connection.connect(os.fspath(socket_file(folder)))
        connection.sendall(encode(Hello(digest=digest)))
        data = b""
        while b"\n" not in data:
            more = connection.recv(65536)
            if not more:
                raise ConnectionResetError
            data += more
        line, _, rest = data.partition(b"\n")
        status = decode(line)
    except (OSError, msgspec.DecodeError):
        # A keeper of another gyre_hpc may speak another language.
        connection.close()
        return None
    assert isinstance(status, Status), "a keeper answers Hello first"
    return Found(connection, status, rest)


class KeeperLink:
    """What the keeper has said so far."""

    def __init__(self, keeper: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once the server answers, or has ended."""
        self.ended: Ended | None = None
        """Nothing of the server is left, or the keeper was killed and took it along."""
        self._keeper: Process | None = identify(keeper)
        self._reader, self._writer = reader, writer
        self._lines = Lines()
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def of_new(cls, connection: socket.socket, keeper: int, hold: Hold) -> "KeeperLink":
        """To a keeper that has been started with the other end as its stdin."""
        link = cls(keeper, *await asyncio.open_unix_connection(sock=connection))
        link.say(hold)
        return link

    @classmethod
    async def of_found(cls, found: Found) -> "KeeperLink":
        found.connection.setblocking(False)
        link = cls(found.status.keeper, *await asyncio.open_unix_connection(sock=found.connection))
        link.ready.set_result(None)
        link._hear(found.rest)
        return link

    def say(self, message: Message) -> None:
        self._writer.write(encode(message))

    def pids(self) -> tuple[int, ...]:
        """The keeper's first."""
        if self._keeper is None or not is_alive(self._keeper):
            return ()
        return (self._keeper.pid, *(pid for pid in descendants(self._keeper.pid) if identify(pid) is not None))

    async def close(self) -> None:
        """The keeper waits for the next leader from now on."""
        self._listening.cancel()
        self._writer.close()
        with contextlib.suppress(asyncio.CancelledError, OSError):
            await self._listening
            await self._writer.wait_closed()

    async def _listen(self) -> None:
        with contextlib.suppress(OSError, msgspec.DecodeError):  # what cannot be read comes from no keeper of ours
            while data := await self._reader.read(65536):
                self._hear(data)
        self._writer.close()
        if self.ended is None:
            self.ended = Ended(why="ended with its keeper, which was killed or failed (see keeper.log beside its log)", tail="")
        if not self.ready.done():
            self.ready.set_result(None)

    def _hear(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            message = decode(line)
            if isinstance(message, Ready) and not self.ready.done():
                self.ready.set_result(None)
            elif isinstance(message, Ended):
                self.ended = message
                if not self.ready.done():
                    self.ready.set_result(None)
