"""The nodes of an allocation meet in a folder that all should see, and try the ways between them: each listens as a run would, node 0
reaches every other node and every other node reaches node 0.

Files of the meeting, each replaced whole by its one writer: <node>.open.json (where it listens), <node>.json (its whole probe), over
(node 0 has seen all). A connection carries a word of the meeting and says the other node's clock, so that another process on the
same address, or this very node, is not taken for it.
"""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from gyre_hpc.clock import monotonic_s, unix_s
from gyre_hpc.config.schema import Config
from gyre_hpc.launch.preflight.facts import Connection, NodeProbe
from gyre_hpc.launch.preflight.probe import look
from gyre_hpc.ports import listen, restrict
from gyre_hpc.shell.timers import until
from gyre_hpc.whole_file import write_whole

Found = TypeVar("Found")
LATEST_S = 90.0
"""A node that does not listen by then is not there."""
_GRACE_S = 2 * 5.0
"""For those that came: until the last of their connections has had its time."""
_CONNECT_S = 5.0
_LOOK_EVERY_S = 0.2
_LONGEST = 256
"""Bytes of a line on a connection."""


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """Where a node can be tried. `port` 0: it cannot listen, `error` says why."""

    node: int
    host: str
    address: str
    port: int
    word: str
    """A connection must answer with it."""
    error: str = ""


def take_part(config: Config, folder: Path, node: int, nodes: int, within_s: float = LATEST_S) -> dict[int, NodeProbe]:
    """One node's part in the meeting in `folder`, which is there. Returns on node 0 the probes of all that came, elsewhere its own.

    Raises OSError when the folder cannot be written here.
    """
    restrict(config.network.port_range)
    return asyncio.run(_Meeting(config, folder, node, nodes, within_s).hold())


def connect(there: Opening) -> Connection:
    """Try the way to an opening of another node; blocking. Never raises OSError."""
    address = f"{there.address}:{there.port}"
    began, asked_at = monotonic_s(), unix_s()
    try:
        with socket.create_connection((there.address, there.port), timeout=_CONNECT_S) as sock:
            sock.sendall(there.word.encode() + b"\n")
            answer = json.loads(sock.makefile("rb").readline(_LONGEST) or b"null")
            seconds = monotonic_s() - began
    except (OSError, ValueError) as error:
        return Connection(to=there.node, address=address, error=str(error))
    if not isinstance(answer, dict) or answer.get("word") != there.word:
        return Connection(to=there.node, address=address, error="somebody else answers there")
    return Connection(to=there.node, address=address, seconds=seconds, ahead_s=float(answer["unix_s"]) - (asked_at + seconds / 2))


class _Meeting:
    def __init__(self, config: Config, folder: Path, node: int, nodes: int, within_s: float) -> None:
        self._folder, self._node, self._nodes = folder, node, nodes
        self._probe = look(config, node, folder)
        self._word = os.urandom(8).hex()
        self._ends_at = monotonic_s() + within_s

    async def hold(self) -> dict[int, NodeProbe]:
        async with self._listening() as opening:
            write_whole(self._folder / f"{self._node}.open.json", msgspec.json.encode(opening))
            # Node 0 with itself too: the only connection of a run on one node.
            others = range(self._nodes) if self._node == 0 else [0]
            ways = [way for way in await asyncio.gather(*(self._reach(other) for other in others)) if way is not None]
            mine = msgspec.structs.replace(self._probe, connections=tuple(ways))
            write_whole(self._folder / f"{self._node}.json", msgspec.json.encode(mine))
            if self._node == 0:
                return {0: mine, **await self._of_others([way.to for way in ways if way.to])}
            if ways:
                await self._wait_for(self._is_over, _GRACE_S)
            return {self._node: mine}

    async def _of_others(self, came: list[int]) -> dict[int, NodeProbe]:
        try:
            probes = {other: await self._wait_for(partial(self._read, f"{other}.json", NodeProbe), _GRACE_S) for other in came}
        finally:
            write_whole(self._folder / "over", b"")
        return {other: probe for other, probe in probes.items() if probe is not None}

    async def _reach(self, other: int) -> Connection | None:
        """None: that node did not come."""
        there = await self._wait_for(partial(self._read, f"{other}.open.json", Opening))
        if there is None:
            return None
        if there.error:
            return Connection(to=other, address=there.address, error=f"{there.host} cannot listen: {there.error}")
        return await asyncio.to_thread(connect, there)

    @contextlib.asynccontextmanager
    async def _listening(self) -> AsyncIterator[Opening]:
        opening = Opening(node=self._node, host=self._probe.host, address=self._probe.address, port=0, word=self._word)
        try:
            if not self._probe.address:
                raise OSError(self._probe.address_error)
            sock = listen(self._probe.address)
        except OSError as error:
            yield msgspec.structs.replace(opening, error=str(error))
            return
        server = await asyncio.start_server(self._answer, sock=sock, limit=_LONGEST)
        try:
            yield msgspec.structs.replace(opening, port=sock.getsockname()[1])
        finally:
            server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError), contextlib.closing(writer):
            asked = await reader.readline()
            if asked.strip() == self._word.encode():
                writer.write(json.dumps({"word": self._word, "unix_s": unix_s()}).encode() + b"\n")
                await writer.drain()

    async def _wait_for(self, find: Callable[[], Found | None], grace_s: float = 0.0) -> Found | None:
        """What `find` finds before the meeting's end; None: nothing."""
        found = find()
        if found is not None:
            return found
        try:
            return await until(find, _LOOK_EVERY_S, max(0.0, self._ends_at + grace_s - monotonic_s()))
        except TimeoutError:
            return None

    def _is_over(self) -> bool | None:
        return True if (self._folder / "over").exists() or not self._folder.exists() else None

    def _read(self, name: str, kind: type[Found]) -> Found | None:
        try:
            return msgspec.json.decode((self._folder / name).read_bytes(), type=kind)
        except FileNotFoundError:
            return None
