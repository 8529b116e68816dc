"""The runner's end of the warden: harnesses run, are stopped, and are gone."""

import asyncio
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable

from gyre_hpc.runner.warden.wire import PACKET_BYTES, Ended, Gone, Halt, Packet, Run, decode, encode, socket_pair
from gyre_hpc.shell.lifetime import child_environment


class WardenDied(Exception):
    """The process that holds the harnesses ended; they ended with it."""


class Harnesses:
    """Lifecycle: start -> run, halt, gone -> close."""

    def __init__(self) -> None:
        self.cpu_s = 0.0
        """CPU seconds of those that ended."""
        self._died: Callable[[str], None] = lambda reason: None
        self._link: socket.socket | None = None
        self._process: Process | None = None
        self._ended: dict[str, Ended] = {}
        self._gone: dict[str, asyncio.Future[Ended | None]] = {}

    async def start(self, died: Callable[[str], None]) -> None:
        """`died` is called once if the warden ends by itself."""
        self._died = died
        self._link, theirs = socket_pair()
        self._link.setblocking(False)
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "gyre_hpc.processes.warden", str(theirs.fileno()),
                stdin=DEVNULL, pass_fds=(theirs.fileno(),), start_new_session=True, env=child_environment(),
            )  # fmt: skip
        asyncio.get_running_loop().add_reader(self._link.fileno(), self._readable)

    async def run(self, run: Run) -> Ended:
        """Until everything it started is gone; if cancelled, it is killed. Raises WardenDied."""
        gone = self._gone[run.id] = asyncio.get_running_loop().create_future()
        try:
            await self._send(run)
            ended: Ended | None = await asyncio.shield(gone)
        except asyncio.CancelledError:
            await self.halt(run.id, force=True)
            raise
        if ended is None:
            return Ended(id=run.id, code=-9, started=True, limit="", cpu_s=0.0, tail="its keeper was killed")
        return ended

    async def halt(self, id: str, *, force: bool) -> None:
        """Nothing if it is gone already."""
        if id in self._gone:
            await self._send(Halt(id=id, force=force))

    async def gone(self, id: str) -> None:
        """Until nothing of it runs any more."""
        if id in self._gone:
            await asyncio.wait([self._gone[id]])

    async def close(self) -> None:
        """End the warden and with it every harness."""
        if self._link is not None:
            asyncio.get_running_loop().remove_reader(self._link.fileno())
            self._link.close()
            self._link = None
        if self._process is not None:
            await self._process.wait()

    async def _send(self, packet: Packet) -> None:
        if self._link is None:
            raise WardenDied("the warden is gone")
        await asyncio.get_running_loop().sock_sendall(self._link, encode(packet))

    def _readable(self) -> None:
        assert self._link is not None
        try:
            data = self._link.recv(PACKET_BYTES)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        if not data:
            self._lost()
            return
        packet = decode(data)
        if isinstance(packet, Ended):
            self._ended[packet.id] = packet
            self.cpu_s += packet.cpu_s
        elif isinstance(packet, Gone):
            future = self._gone.pop(packet.id, None)
            ended = self._ended.pop(packet.id, None)
            if future is not None and not future.done():
                future.set_result(ended)

    def _lost(self) -> None:
        assert self._link is not None
        asyncio.get_running_loop().remove_reader(self._link.fileno())
        self._link.close()
        self._link = None
        for future in self._gone.values():
            future.set_exception(WardenDied("the warden died"))
        self._gone.clear()
        self._died("the warden died")
