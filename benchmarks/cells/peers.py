"""The other end of a transfer, in a process of its own: `python -m benchmarks.cells.peers KIND BYTES`, orders and answers as JSON lines.

stream: a plain TCP stream, the yardstick: each connection gets everything, chunk by chunk, a checksum after each.
snapshot: a snapshot store; `step` makes version 0.N, another content each time.
c10d, mooncake: a rank of a cell with leased KV pages; an order is a command of gyre_hpc/cell/commands.py.
"""

import base64
import json
import socket
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from gyre_hpc.cell import commands
from gyre_hpc.cell.kv_rank import KvRank
from gyre_hpc.config.schema import TransportConfig
from gyre_hpc.engines.base import PageBytes
from gyre_hpc.protocol.identity import Version
from gyre_hpc.transport.kv import create_block_transport
from gyre_hpc.transport.snapshot_store import HostSnapshotStore

HOST, TOKEN = "127.0.0.1", "benchmark"
CHUNK_BYTES = TransportConfig().chunk_bytes
PAGE_BYTES = 256 << 10
"""Of one KV block in these measurements."""
DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True)
class Peer:
    """A started peer."""

    process: "subprocess.Popen[str]"
    first: Any
    """What it said when it was ready."""

    def order(self, order: Any) -> None:
        """The peer begins; `answer` waits for it."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        """Raises RuntimeError when the peer has ended."""
        return _answer(self.process)


def _answer(process: "subprocess.Popen[str]") -> Any:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"a peer ended with code {process.wait()}")
    return json.loads(line)


@contextmanager
def peer(kind: str, size: int) -> Iterator[Peer]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.cells.peers", kind, str(size)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield Peer(process, _answer(process))
    finally:
        process.kill()
        process.wait()


class Pages(PageBytes):
    """Pages side by side; leases and reservations are all of them."""

    def __init__(self, memory: np.ndarray) -> None:
        self.memory, self.block_bytes = memory, PAGE_BYTES
        self._pages = [memory[start : start + PAGE_BYTES] for start in range(0, memory.size, PAGE_BYTES)]

    def leased(self, lease: int, indices: Sequence[int]) -> list[np.ndarray]:
        return [self._pages[index] for index in indices]

    def reserved(self, reservation: int, start: int, end: int) -> list[np.ndarray]:
        return self._pages[start:end]


def rank(kind: str, memory: np.ndarray) -> KvRank:
    """As in a cell of one rank."""
    pages = Pages(memory)
    return KvRank(0, lambda: pages, lambda: create_block_transport(TransportConfig(kv=kind), HOST))


def content(size: int) -> np.ndarray:
    """uint8 [size], touched."""
    return np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)


def _say(value: Any) -> None:
    print(json.dumps(value), flush=True)


def _stream(size: int) -> None:
    data = content(size).data
    listener = socket.create_server((HOST, 0))

    def serve() -> None:
        while True:
            with listener.accept()[0] as connection:
                for start in range(0, size, CHUNK_BYTES):
                    chunk = data[start : start + CHUNK_BYTES]
                    connection.sendall(chunk)
                    connection.sendall(zlib.crc32(chunk).to_bytes(4, "little"))

    threading.Thread(target=serve, daemon=True).start()
    _say(listener.getsockname()[1])
    sys.stdin.read()


def _snapshot(size: int) -> None:
    data = content(size)
    store = HostSnapshotStore(chunk_bytes=CHUNK_BYTES, deadline_s=DEADLINE_S)
    _say(store.serve(HOST, TOKEN))
    for line in sys.stdin:
        step = json.loads(line)
        data[:8] = np.frombuffer(step.to_bytes(8, "little"), dtype=np.uint8)
        store.put(Version(0, step), {"weights": data})
        _say(True)


def _blocks(kind: str, size: int) -> None:
    source = rank(kind, content(size))
    _say(True)
    for line in sys.stdin:
        command = msgspec.msgpack.decode(base64.b64decode(json.loads(line)), type=commands.KvCommand)
        _say(base64.b64encode(source.do(command)).decode())


if __name__ == "__main__":
    if sys.argv[1] == "stream":
        _stream(int(sys.argv[2]))
    elif sys.argv[1] == "snapshot":
        _snapshot(int(sys.argv[2]))
    else:
        _blocks(sys.argv[1], int(sys.argv[2]))
