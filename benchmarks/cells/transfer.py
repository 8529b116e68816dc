"""How fast snapshots and KV blocks travel, beside one plain TCP stream that makes the same checksum passes, in turns within one run.

Everything is warm: each side has done it before and has its memory; the first time is told beside it.
"""

import base64
import socket
import statistics
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import numpy as np

from benchmarks.cells.peers import CHUNK_BYTES, DEADLINE_S, HOST, PAGE_BYTES, TOKEN, Peer, rank
from gyre_hpc.cell import commands
from gyre_hpc.cell.kv_transfer import cut_in_pieces
from gyre_hpc.cell.kv_wire import Fetched, Offered
from gyre_hpc.protocol.identity import Version
from gyre_hpc.transport.kv_base import Ticket
from gyre_hpc.transport.snapshot_store import HostSnapshotStore

SIZE = 200 << 20


@dataclass(slots=True)
class Way:
    """One way to move SIZE bytes from another process, and how long it took each time."""

    name: str
    move: Callable[[], None]
    prepare: Callable[[], None] = lambda: None
    """Not part of the time."""
    seconds: list[float] = field(default_factory=list)
    first_s: float = 0.0

    def once(self) -> float:
        self.prepare()
        begin = time.perf_counter()
        self.move()
        return time.perf_counter() - begin

    @property
    def gb_per_s(self) -> float:
        return SIZE / 1e9 / statistics.median(self.seconds)


def measure(ways: list[Way], rounds: int) -> None:
    """In turns: whatever else the machine does hits all of them."""
    for way in ways:
        way.first_s = way.once()
        way.once()
    for _ in range(rounds):
        for way in ways:
            way.seconds.append(way.once())


def table(ways: list[Way]) -> str:
    lines = [f"{'way':<12}{'GB/s':>8}{'share':>8}{'best GB/s':>12}{'first s':>10}"]
    for way in ways:
        share, best = way.gb_per_s / ways[0].gb_per_s, SIZE / 1e9 / min(way.seconds)
        lines.append(f"{way.name:<12}{way.gb_per_s:>8.2f}{share:>8.2f}{best:>12.2f}{way.first_s:>10.2f}")
    return "\n".join(lines)


def stream_way(source: Peer) -> Way:
    """The yardstick."""
    target = np.ones(SIZE, dtype=np.uint8)
    return Way("plain TCP", lambda: stream(source, target))


def stream(source: Peer, target: np.ndarray) -> None:
    """sendall there, recv_into here, into memory that is there already. Raises RuntimeError on a wrong checksum."""
    with socket.create_connection((HOST, source.first)) as connection:
        for start in range(0, SIZE, CHUNK_BYTES):
            chunk = target.data[start : start + CHUNK_BYTES]
            found = zlib.crc32(_fill(connection, chunk))
            if found != int.from_bytes(_fill(connection, memoryview(bytearray(4))), "little"):
                raise RuntimeError("the plain stream was damaged")


def _fill(connection: socket.socket, buffer: memoryview) -> memoryview:
    done = 0
    while done < len(buffer):
        done += connection.recv_into(buffer[done:])
    return buffer


class Snapshots:
    """A satellite that pulls each version in turn. Making the version is not part of the time."""

    def __init__(self, source: Peer) -> None:
        self._source, self._step = source, 0
        self._store = HostSnapshotStore(chunk_bytes=CHUNK_BYTES, deadline_s=DEADLINE_S)
        self._store.serve(HOST, TOKEN)

    def prepare(self) -> None:
        self._step += 1
        self._source.order(self._step)
        self._source.answer()

    def pull(self) -> None:
        self._store.pull(Version(0, self._step), (self._source.first,), DEADLINE_S)


class Blocks:
    """Pages of another process's cache, as ranks of cells move them (cell/kv_transfer.py): piece by piece, the next one's checksums
    made while one is fetched, checked on arrival."""

    def __init__(self, kind: str, source: Peer) -> None:
        self._source = source
        self._rank = rank(kind, np.zeros(SIZE, dtype=np.uint8))

    def move(self) -> None:
        pieces = cut_in_pieces(SIZE // PAGE_BYTES, PAGE_BYTES)
        tickets: list[Ticket] = []
        self._offer(*pieces[0])
        for number, (start, end) in enumerate(pieces, 1):
            offered = msgspec.msgpack.decode(self._told(), type=Offered)
            if number < len(pieces):
                self._offer(*pieces[number])
            fetch = commands.KvFetch(0, start, end, (offered,), DEADLINE_S)
            fetched = msgspec.msgpack.decode(self._rank.do(fetch), type=Fetched)
            if offered.ticket is None or fetched.trouble or fetched.bad:
                raise RuntimeError(f"blocks did not arrive: {offered.trouble}{fetched.trouble}{fetched.bad}")
            tickets.append(offered.ticket)
        self._order(commands.KvWithdraw((tuple(tickets),)))
        self._told()

    def _offer(self, start: int, end: int) -> None:
        self._order(commands.KvOffer(0, tuple(range(start, end)), DEADLINE_S))

    def _order(self, command: commands.KvCommand) -> None:
        self._source.order(base64.b64encode(msgspec.msgpack.encode(command)).decode())

    def _told(self) -> bytes:
        return base64.b64decode(self._source.answer())
