"""The leader's side of a server: adopts or starts it, waits until it answers, ends it.

What lives on without the leader is the keeper's (keeper.py). Nothing here blocks the loop: files of a few bytes aside, what waits for
processes does so in a thread, and what waits for the server waits for the keeper's word, deadlines included.
"""

import asyncio
import contextlib
import os
import secrets
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from gyre_hpc.engines.sglang.keeper_link import KeeperLink, find_keeper
from gyre_hpc.engines.sglang.keeper_wire import End, Hold
from gyre_hpc.engines.sglang.parts import LONGEST_FOLDER, Address, Launch, ServerLost
from gyre_hpc.engines.sglang.predecessor import end_predecessor
from gyre_hpc.engines.sglang.process_table import MARK
from gyre_hpc.engines.sglang.server_folder import Noted, log_file, read_noted, write_noted
from gyre_hpc.errors import UserError
from gyre_hpc.observability.process_tree import identify
from gyre_hpc.ports import listen

_PORT_TRIES = 3
_LOG_BYTES = 16 << 20


class Server:
    """Holder of the server of one node."""

    def __init__(
        self,
        launch: Launch,
        *,
        start_deadline_s: float,
        orphan_s: float,
        root_pid: int | None = None,
        is_first: bool = True,
        end_s: float = 10.0,
        log: Path | None = None,
        log_bytes: int = _LOG_BYTES,
    ) -> None:
        """root_pid: the process whose end ends the server whatever the leader does; default: the leader's parent.
        orphan_s: so long the server outlives its leader, in wait for the next one.
        is_first: the server of the cell's first node has SGLang's API; those of others only say that they are well.
        end_s: between SIGTERM and SIGKILL. log: default: in the launch's folder. log_bytes: of each of two log files.
        Raises UserError when the launch's folder has too long a path."""
        if len(os.fsencode(launch.folder)) > LONGEST_FOLDER:
            raise UserError("paths.scratch", str(launch.folder), f"make the path of a server's folder at most {LONGEST_FOLDER} bytes long")
        self.was_adopted = False
        self.noted = ""
        """What `note` wrote last, in the life of the leader before this one too if its server was adopted; empty: nothing."""
        self._launch, self._folder = launch, launch.folder
        self._root_pid = os.getppid() if root_pid is None else root_pid
        self._start_deadline_s, self._orphan_s, self._end_s = start_deadline_s, orphan_s, end_s
        self._is_first, self._log_bytes = is_first, log_bytes
        self._log = log or log_file(launch.folder)
        self._nonce = ""
        self._link: KeeperLink | None = None
        self._burial: threading.Thread | None = None
        """Takes the keeper's exit status, whenever that comes: it may outlive this object."""

    async def start(self) -> Address:
        """`adopt`, else `begin`."""
        return await self.adopt() or await self.begin()

    async def adopt(self) -> Address | None:
        """The server of an equal launch that is well and whose noted state is asleep or awake; None: there is none.

        A cell of several nodes adopts on all or on none: where another could not, `stop` this one and `begin`."""
        digest = self._launch.digest()
        found = await asyncio.to_thread(find_keeper, self._folder, digest)
        if found is None:
            return None
        noted = read_noted(self._folder)
        can_be = found.status.digest == digest and found.status.is_well
        if not can_be or noted is None or noted.nonce != found.status.nonce or noted.state not in ("asleep", "awake"):
            found.connection.close()
            return None
        self._link = await KeeperLink.of_found(found)
        self._nonce, self.noted, self.was_adopted = found.status.nonce, noted.state, True
        return _address(self._launch.host, found.status.port, found.status.key)

    async def begin(self) -> Address:
        """End what is left there, start a new one; returns once it answers. Raises ServerLost with the end of its log, and UserError
        when it refused its command line, which no further start would change."""
        for tries_left in reversed(range(_PORT_TRIES)):
            port = _free_port()
            try:
                return await self._begin_at(port)
            except ServerLost:
                # Another program may have taken the port between our look and the server's.
                ended = self._link.ended if self._link is not None else None
                if not tries_left or ended is None or not ended.port_was_taken:
                    raise
        raise AssertionError("unreachable")

    async def _begin_at(self, port: int) -> Address:
        await self.leave()
        hold = self._hold(port)
        self.was_adopted, self.noted, self._nonce = False, "", hold.nonce
        ours, keepers = socket.socketpair()
        with keepers:
            keeper = await asyncio.to_thread(self._start_keeper, keepers)
        self._burial = threading.Thread(target=keeper.wait, name="keeper's exit", daemon=True)
        self._burial.start()
        self._link = link = await KeeperLink.of_new(ours, keeper.pid, hold)
        try:
            await link.ready
        except asyncio.CancelledError:
            link.say(End())
            raise
        if link.ended is not None:
            await asyncio.to_thread(self._burial.join)
            if link.ended.found_flags_wrong:
                raise UserError("engine.sglang.flags", _last_line(link.ended.tail), f"SGLang refused its command line; see {self._log}")
            raise ServerLost(self.failure())
        return _address(hold.host, port, hold.key)

    def _hold(self, port: int) -> Hold:
        root = identify(self._root_pid)
        if root is None:
            raise ServerLost(f"the process that holds the run (pid {self._root_pid}) is gone")
        launch = self._launch
        return Hold(
            digest=launch.digest(),
            nonce=secrets.token_hex(8),
            argv=(str(launch.python), *launch.program, *launch.flags),
            environ={**launch.environ, MARK: str(self._folder)},
            folder=str(self._folder),
            host=launch.host,
            port=port,
            bootstrap_port=launch.bootstrap_port,
            key=secrets.token_hex(24),
            is_first=self._is_first,
            root_pid=root.pid,
            root_born=root.born,
            start_deadline_s=self._start_deadline_s,
            orphan_s=self._orphan_s,
            end_s=self._end_s,
            log=str(self._log),
            log_bytes=self._log_bytes,
        )

    def _start_keeper(self, connection: socket.socket) -> "subprocess.Popen[bytes]":
        self._folder.mkdir(parents=True, exist_ok=True)
        # Its log shows prompts, and whoever reaches the keeper's socket has the key.
        self._folder.chmod(0o700)
        with open(self._folder / "keeper.log", "wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "gyre_hpc.engines.sglang.keeper"],
                stdin=connection.fileno(),
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, MARK: str(self._folder)},
            )

    def note(self, state: str) -> None:
        """asleep | awake | changing, for whoever adopts it; written by rename."""
        write_noted(self._folder, Noted(nonce=self._nonce, state=state))
        self.noted = state

    def failure(self) -> str | None:
        """Why the server is gone; None: it runs, or was never started, or was stopped."""
        if self._link is None or self._link.ended is None:
            return None
        ended = self._link.ended
        words = f"\nThe end of {self._log}:\n{ended.tail}" if ended.tail else f" (it had printed nothing into {self._log})"
        return f"SGLang's server {ended.why}{words}"

    def pids(self) -> tuple[int, ...]:
        """Of the server's processes, the keeper's first; empty when it is gone."""
        return () if self._link is None else self._link.pids()

    async def leave(self) -> None:
        """Let go of a server that goes on, in wait for the next leader."""
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    async def stop(self) -> None:
        """End server and keeper, with everything they started. Raises ServerLost when some of it does not end."""
        if self._link is not None:
            self._link.say(End())
        left = await asyncio.to_thread(end_predecessor, self._folder, self._end_s)
        await self.leave()
        if left:
            raise ServerLost(f"processes of SGLang's server do not end: {left}")
        if self._burial is not None:
            await asyncio.to_thread(self._burial.join)


def _last_line(text: str) -> str:
    return text.rpartition("\n")[2].strip()


def _address(host: str, port: int, key: str) -> Address:
    return Address(url=f"http://{host}:{port}", key=key)


def _free_port() -> int:
    """Free now, within network.port_range; SGLang cannot be given one that is bound already."""
    with contextlib.closing(listen("127.0.0.1")) as taken:
        name: tuple[Any, ...] = taken.getsockname()
        return int(name[1])
