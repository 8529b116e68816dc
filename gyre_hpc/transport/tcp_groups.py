"""Groups over plain TCP with numpy arrays: for timed cells, each a process of its own without torch.

The core listens on a free port of its interface. A member connects, shows its proof, gets the core's, sends its array,
and returns once the core has the whole sum. Same contract as c10d: nonce before anything, a copy, a deadline, an abort.
"""

import contextlib
import socket
import struct
import threading
from typing import Any

import msgspec
import numpy as np

from gyre_hpc.clock import monotonic_s
from gyre_hpc.errors import TransferFailed
from gyre_hpc.ports import listen
from gyre_hpc.transport.base import Groups
from gyre_hpc.transport.breakable import Breakable
from gyre_hpc.transport.deadline_socket import DeadlineSocket
from gyre_hpc.transport.proof import is_right, proof

_INNER_SHARE = 0.9
"""Sockets give up a little before the caller does: their reason says more than "deadline passed"."""
_MAX_HELLO = 4096


class _Hello(msgspec.Struct, frozen=True):
    """First words of both sides. `refused` is the core's reason not to go on."""

    rank: int
    proof: str
    size: int
    refused: str = ""


class TcpGroups(Groups):
    """Kind `tcp`. Tensors are numpy arrays float32 [n]. `host`: address of this process's interface."""

    def __init__(self, *, host: str) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._listeners: dict[int, socket.socket] = {}
        self._running: dict[int, list[Breakable]] = {}
        self._aborted: set[int] = set()

    def host(self, generation: int, nonce: str) -> str:
        if not nonce:
            raise ValueError("nonce is empty")
        with self._lock:
            older = [number for number in self._listeners if number < generation]
            if generation not in self._listeners:
                self._listeners[generation] = listen(self._host)
            port = self._listeners[generation].getsockname()[1]
        for number in older:
            self.abort(number)
        return f"{self._host}:{port}"

    def reduce(self, generation: int, address: str, nonce: str, rank: int, world: int, tensor: Any, deadline_s: float) -> Any | None:
        scratch = np.array(tensor, dtype=np.float32, copy=True)
        part = _Part(generation, nonce, rank, world, monotonic_s() + _INNER_SHARE * deadline_s)
        what = f"reduce of generation {generation}, rank {rank}"
        call = Breakable(lambda _: part.gather(self._listener(generation), scratch) if rank == 0 else part.give(address, scratch), what)
        with self._lock:
            if generation in self._aborted:
                raise TransferFailed(f"{what}: aborted")
            self._running.setdefault(generation, []).append(call)
        try:
            return call.run(deadline_s)
        finally:
            with self._lock:
                self._running[generation].remove(call)

    def abort(self, generation: int) -> None:
        with self._lock:
            self._aborted.add(generation)
            listener = self._listeners.pop(generation, None)
            running = list(self._running.get(generation, ()))
        for call in running:
            call.abort("aborted")
        if listener is not None:
            _close(listener)

    def close(self) -> None:
        with self._lock:
            generations = {*self._listeners, *self._running}
        for generation in generations:
            self.abort(generation)

    def _listener(self, generation: int) -> socket.socket:
        with self._lock:
            if generation not in self._listeners:
                raise TransferFailed("this core hosts no such generation")
            return self._listeners[generation]


class _Part:
    """One rank of one generation."""

    def __init__(self, generation: int, nonce: str, rank: int, world: int, until: float) -> None:
        self._generation, self._nonce, self._rank, self._world, self._until = generation, nonce, rank, world, until

    def gather(self, listener: socket.socket, scratch: np.ndarray) -> np.ndarray:
        """Rank 0: the sum in rank order, whoever came first."""
        with contextlib.ExitStack() as open_sockets:
            members = self._meet(listener, scratch.size, open_sockets)
            for rank, peer in sorted(members.items()):
                _send(peer, self._hello(scratch.size))
                part = np.empty_like(scratch)
                _read(peer, part.data.cast("B"), f"rank {rank} of {self._world} broke off")
                scratch += part
            for peer in members.values():
                peer.sendall(b"\1")
        return scratch

    def give(self, address: str, scratch: np.ndarray) -> None:
        """Other ranks."""
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), self._left()) as plain:
            peer = DeadlineSocket(plain, self._left())
            _send(peer, self._hello(scratch.size))
            core = _receive(peer, "rank 0 did not answer")
            if core.refused:
                raise TransferFailed(core.refused)
            self._check(core, 0)
            peer.sendall(scratch.data.cast("B"))
            _read(peer, memoryview(bytearray(1)), "rank 0 did not confirm the sum")

    def _meet(self, listener: socket.socket, size: int, open_sockets: contextlib.ExitStack) -> dict[int, DeadlineSocket]:
        """Everybody has come and shown the proof, or nobody goes on."""
        members: dict[int, DeadlineSocket] = {}
        try:
            while len(members) < self._world - 1:
                plain = open_sockets.enter_context(self._accept(listener, members))
                peer = DeadlineSocket(plain, self._left())
                hello = _receive(peer, "a member broke off")
                members[hello.rank] = peer
                self._check(hello, hello.rank)
                if hello.size != size:
                    raise TransferFailed(f"rank {hello.rank} has {hello.size} values, rank 0 {size}")
        except TransferFailed as error:
            for peer in members.values():
                with contextlib.suppress(OSError):
                    _send(peer, msgspec.structs.replace(self._hello(size), refused=str(error)))
            raise
        return members

    def _accept(self, listener: socket.socket, members: dict[int, DeadlineSocket]) -> socket.socket:
        try:
            listener.settimeout(self._left())
            return listener.accept()[0]
        except (OSError, TransferFailed) as error:
            absent = min(set(range(1, self._world)) - set(members))
            raise TransferFailed(f"rank {absent} of {self._world} did not come") from error

    def _hello(self, size: int) -> _Hello:
        return _Hello(self._rank, proof(self._nonce, self._generation, self._rank, self._world), size)

    def _check(self, hello: _Hello, rank: int) -> None:
        if hello.rank != rank or not 0 <= rank < self._world or not is_right(hello.proof, self._nonce, self._generation, rank, self._world):
            raise TransferFailed(f"rank {hello.rank} of {self._world} shows a wrong nonce")

    def _left(self) -> float:
        left = self._until - monotonic_s()
        if left <= 0:
            raise TransferFailed("deadline passed")
        return left


def _send(peer: DeadlineSocket, hello: _Hello) -> None:
    data = msgspec.msgpack.encode(hello)
    peer.sendall(struct.pack("<I", len(data)) + data)


def _receive(peer: DeadlineSocket, otherwise: str) -> _Hello:
    head = bytearray(4)
    _read(peer, memoryview(head), otherwise)
    (length,) = struct.unpack("<I", head)
    if length > _MAX_HELLO:
        raise TransferFailed(f"{otherwise}: {length} bytes are no greeting")
    data = bytearray(length)
    _read(peer, memoryview(data), otherwise)
    try:
        return msgspec.msgpack.decode(data, type=_Hello)
    except msgspec.MsgspecError as error:
        raise TransferFailed(f"{otherwise}: {error}") from error


def _read(peer: DeadlineSocket, buffer: memoryview, otherwise: str) -> None:
    """Fill `buffer`. Raises TransferFailed."""
    try:
        while buffer:
            count = peer.recv_into(buffer)
            if not count:
                raise TransferFailed(otherwise)
            buffer = buffer[count:]
    except OSError as error:
        raise TransferFailed(f"{otherwise}: {error}") from error


def _close(listener: socket.socket) -> None:
    """Wakes an accept in another thread, too."""
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()
