"""`python -m gyre_hpc.engines.sglang.keeper`: holds one server, for whichever leader its cell has.

It holds the server as long as the run's root process lives and a leader is connected, or was less than orphan_s ago. So a leader
that is restarted finds its server as it was, and no server outlives its run. Stdin is the socket of the leader that starts it; the
next ones come by the Unix socket in the server's folder. No torch, no HTTP library: it is there at once.

A program of its own: it waits in poll, and knows neither the run nor its machines.
"""

import contextlib
import json
import os
import select
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import msgspec

from gyre_hpc.clock import monotonic_s
from gyre_hpc.engines.sglang.bounded_log import BoundedLog
from gyre_hpc.engines.sglang.guard import Guard, Wakeups, be_subreaper
from gyre_hpc.engines.sglang.keeper_wire import End, Ended, Hello, Hold, Lines, Message, Ready, Status, decode, encode
from gyre_hpc.engines.sglang.predecessor import end_predecessor
from gyre_hpc.engines.sglang.probe import is_ours
from gyre_hpc.engines.sglang.process_table import ranks_below
from gyre_hpc.engines.sglang.server_folder import clear, prepare, socket_file, start_file, start_flags
from gyre_hpc.engines.sglang.shared_memory import mapped, remove
from gyre_hpc.observability.process_tree import Process, descendants, is_alive
from gyre_hpc.whole_file import write_whole

_TICK_S = 0.25
_WRONG_FLAGS = 2
"""argparse's exit code; Python's own too, for a program that is not there."""
_LOOK_S = 30.0
"""Between two looks at the server's shared memory: if it ends of itself, what was seen last is removed."""


class Keeper:
    """One server, from its start to its end."""

    def __init__(self, hold: Hold, leader: "Line", listener: socket.socket, wakeups: Wakeups) -> None:
        self._hold, self._folder = hold, Path(hold.folder)
        self._root = Process(hold.root_pid, hold.root_born)
        self._lines: dict[int, Line] = {}
        self._leaders: set[int] = {leader.fd}
        """Those of `_lines` that hold the server: a connection of another launch does not."""
        self._first_leader = leader
        self._listener, self._wakeups = listener, wakeups
        self._log = BoundedLog(Path(hold.log), hold.log_bytes)
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._why = ""
        """Why the server is being ended; empty: it is not."""
        self._is_ready = False
        self._ranks: dict[Process, str] = {}
        self._is_over = False
        self._shared: set[str] = set()
        self._look_at = float("inf")
        self._begun = self._held_at = monotonic_s()

    def keep(self) -> None:
        """Until nothing of the server is left."""
        self._output, output = os.pipe()
        os.set_blocking(self._output, False)
        write_whole(start_file(self._folder), json.dumps(start_flags(self._hold.port, self._hold.key)).encode(), mode=0o600)
        argv = (*self._hold.argv, "--config", str(start_file(self._folder)))
        self._guard = Guard(argv, self._hold.environ, output, self._folder, self._hold.end_s)
        os.close(output)
        for fd, handler in (
            (self._output, self._read_output),
            (self._guard.news, self._guard_ended),
            (self._wakeups.fd, self._woken),
            (self._listener.fileno(), self._accept),
        ):
            self._watch(fd, handler)
        self._add(self._first_leader)
        while not self._is_over:
            for fd, _ in self._poll.poll(_TICK_S * 1000):
                if fd in self._handlers:
                    self._handlers[fd]()
            self._tick()
        remove(self._shared)
        self._read_output()
        self._log.close()

    def last_words(self) -> Ended:
        return Ended(
            why=self._why,
            tail=self._log.tail(),
            port_was_taken=not self._is_ready and self._is_taken(self._hold.port),
            found_flags_wrong=not self._is_ready and self._why == _how_it_ended(_WRONG_FLAGS),
        )

    def say(self, message: Message) -> None:
        """To every leader."""
        for fd in self._leaders:
            self._lines[fd].say(message)

    def _watch(self, fd: int, handler: Callable[[], None]) -> None:
        self._handlers[fd] = handler
        self._poll.register(fd, select.POLLIN)

    def _forget(self, fd: int) -> None:
        self._handlers.pop(fd)
        self._poll.unregister(fd)

    def _tick(self) -> None:
        now = monotonic_s()
        if self._leaders:
            self._held_at = now
        if now > self._look_at:
            self._look()
        if self._why or self._is_over:
            return
        if not is_alive(self._root):
            self._end("its run is over")
        elif now - self._held_at > self._hold.orphan_s:
            self._end(f"its cell's process was gone for {self._hold.orphan_s:g} s")
        elif not self._is_ready and self._is_well():
            self._is_ready = True
            self._ranks = ranks_below(self._guard.pid)
            start_file(self._folder).unlink(missing_ok=True)
            self._look()
            self.say(Ready())
        elif not self._is_ready and self._is_taken(self._hold.port):
            # SGLang says so and then hangs.
            self._end("found its port taken")
        elif not self._is_ready and self._hold.bootstrap_port and self._is_taken(self._hold.bootstrap_port):
            # SGLang says so and goes on without it.
            self._end("found its bootstrap port taken")
        elif not self._is_ready and now - self._begun > self._hold.start_deadline_s:
            self._end(f"did not answer within {self._hold.start_deadline_s:g} s of its start")
        elif lost := next((title for rank, title in self._ranks.items() if not is_alive(rank)), ""):
            # SGLang sees it too, and looks for reasons for a minute before it ends.
            self._end(f"lost its process {lost}")

    def _is_well(self) -> bool:
        return is_ours(self._hold.port, self._hold.key, has_key=self._hold.is_first, host=self._hold.host)

    def _is_taken(self, port: int) -> bool:
        return any(str(port) in line and "address already in use" in line for line in self._log.tail().splitlines())

    def _end(self, why: str) -> None:
        if not self._why:
            self._why = why
            self._look()
            self._guard.end()

    def _look(self) -> None:
        """Remember the shared memory that the server has now."""
        self._look_at = monotonic_s() + _LOOK_S
        self._shared |= mapped(descendants(self._guard.pid))

    def _woken(self) -> None:
        if signal.SIGTERM in self._wakeups.take():
            self._end("its keeper was told to end (SIGTERM)")

    def _guard_ended(self) -> None:
        code = self._guard.finish()
        if not self._why:
            self._why = _how_it_ended(code)
        self._forget(self._guard.news)
        self._is_over = True

    def _read_output(self) -> None:
        while True:
            try:
                data = os.read(self._output, 65536)
            except BlockingIOError:
                return
            if not data:
                if self._output in self._handlers:
                    self._forget(self._output)
                return
            self._log.write(data)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        self._add(Line(connection))

    def _add(self, line: "Line") -> None:
        self._lines[line.fd] = line
        self._watch(line.fd, lambda: self._hear(line))

    def _hear(self, line: "Line") -> None:
        messages = line.hear()
        if messages is None:
            self._forget(line.fd)
            self._leaders.discard(line.fd)
            self._lines.pop(line.fd).close()
            return
        for message in messages:
            if isinstance(message, End):
                self._end("it was told to")
                # Whoever says so waits for the end.
                self._leaders.add(line.fd)
            elif isinstance(message, Hello):
                if message.digest == self._hold.digest:
                    self._leaders.add(line.fd)
                line.say(self._status())

    def _status(self) -> Status:
        return Status(
            digest=self._hold.digest,
            nonce=self._hold.nonce,
            keeper=os.getpid(),
            port=self._hold.port,
            key=self._hold.key,
            is_well=self._is_ready and not self._why and self._is_well(),
        )


class Line:
    """One connection. What it cannot take at once is lost, and it with it: nobody reads there."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._connection.setblocking(False)
        self._lines = Lines()
        self.fd = connection.fileno()

    def hear(self) -> list[Message] | None:
        """What was said since; None: the other end is gone, or speaks another language."""
        try:
            data = self._connection.recv(65536)
            return [decode(line) for line in self._lines.feed(data)] if data else None
        except BlockingIOError:
            return []
        except (OSError, msgspec.DecodeError):
            return None

    def say(self, message: Message) -> None:
        with contextlib.suppress(OSError):
            self._connection.sendall(encode(message))

    def close(self) -> None:
        self._connection.close()


def _how_it_ended(code: int | None) -> str:
    if code is None:
        return "the guard of its processes was killed"
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def main() -> None:
    wakeups = Wakeups()
    be_subreaper()
    connection = socket.socket(fileno=os.dup(0))
    with open("/dev/null", "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    hold = _first_line(connection)
    leader, folder = Line(connection), Path(hold.folder)
    left = end_predecessor(folder, hold.end_s)
    if left:
        leader.say(Ended(why=f"processes of an earlier server do not end: {left}", tail=""))
        return
    prepare(folder)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(socket_file(folder)))
        socket_file(folder).chmod(0o600)
        listener.listen()
        keeper = Keeper(hold, leader, listener, wakeups)
        try:
            keeper.keep()
        finally:
            clear(folder)
        keeper.say(keeper.last_words())


def _first_line(connection: socket.socket) -> Hold:
    data = b""
    while not data.endswith(b"\n"):
        more = connection.recv(1 << 20)
        if not more:
            raise SystemExit("the leader was gone before it said what to hold")
        data += more
    hold = decode(data)
    assert isinstance(hold, Hold), "the first line says what to hold"
    return hold


if __name__ == "__main__":
    main()
