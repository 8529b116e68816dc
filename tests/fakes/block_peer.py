"""A source or a reader of blocks in a process of its own, driven by a test: JSON lines in, JSON lines out.

python -m tests.fakes.block_peer KIND SIZE; orders: {"do": "offer" | "fetch" | "withdraw", ...}. With `signal`, the process sends itself that
signal in the middle of the transfer: a source after it has taken the claim, a reader when its first piece has come.
"""

import hashlib
import json
import os
import signal
import sys
from contextlib import contextmanager

import msgspec
import numpy as np

from gyre_hpc.config.schema import TransportConfig
from gyre_hpc.errors import TransferFailed
from gyre_hpc.transport.kv import create_block_transport
from gyre_hpc.transport.kv_base import Arrived, BlockTransport, Ticket, nobody
from gyre_hpc.transport.kv_offered import Offered


def content(size: int) -> np.ndarray:
    return np.arange(size, dtype=np.uint32).view(np.uint8)[:size].copy()


def cut(memory: np.ndarray, sizes: list[int]) -> list[np.ndarray]:
    ends = np.cumsum(sizes).tolist()
    return [memory[end - size : end] for size, end in zip(sizes, ends, strict=True)]


def digest(blocks: list[np.ndarray]) -> str:
    return hashlib.sha256(b"".join(block.tobytes() for block in blocks)).hexdigest()


def _signal_source(kind: str, name: str) -> None:
    def send() -> None:
        os.kill(os.getpid(), signal.Signals[name])

    if kind == "mooncake":
        from gyre_hpc.transport import kv_mooncake

        kv_mooncake._Reading.bring = lambda *_: send()  # type: ignore[method-assign]
        return
    whole, count = Offered.reading, 0

    @contextmanager
    def reading(offered):  # type: ignore[no-untyped-def]
        nonlocal count
        count += 1
        if count == 2:
            send()
        with whole(offered):
            yield

    Offered.reading = reading  # type: ignore[method-assign]


def _signal_reader(name: str) -> Arrived:
    """This process gets the signal when the first piece has come."""
    sent: list[int] = []

    def arrived(count: int) -> None:
        if not sent:
            sent.append(count)
            os.kill(os.getpid(), signal.Signals[name])

    return arrived


def _do(kind: str, transport: BlockTransport, memory: np.ndarray, order: dict) -> object:
    if order["do"] == "offer":
        if "signal" in order:
            _signal_source(kind, order["signal"])
        return msgspec.to_builtins(transport.offer(cut(memory, order["sizes"]), order["deadline_s"]))
    ticket = msgspec.convert(order["ticket"], Ticket)
    if order["do"] == "withdraw":
        return transport.withdraw(ticket)
    arrived = _signal_reader(order["signal"]) if "signal" in order else nobody
    memory[:] = 0
    blocks = cut(memory, list(ticket.sizes))
    try:
        transport.fetch(ticket, blocks, order["deadline_s"], arrived)
    except TransferFailed as error:
        return {"failed": str(error)}
    return {"digest": digest(blocks)}


def main() -> None:
    kind, size = sys.argv[1], int(sys.argv[2])
    transport = create_block_transport(TransportConfig(kv=kind), "127.0.0.1")
    assert transport is not None
    memory = content(size)
    transport.register(memory)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        print(json.dumps(_do(kind, transport, memory, json.loads(line))), flush=True)
    transport.close()


if __name__ == "__main__":
    main()
