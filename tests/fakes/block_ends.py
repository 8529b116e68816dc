"""Both ends of a block transport: in this process (End), or in one of its own (Peer)."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from gyre_hpc.config.schema import TransportConfig
from gyre_hpc.errors import UserError
from gyre_hpc.transport.kv import create_block_transport
from gyre_hpc.transport.kv_base import Ticket
from gyre_hpc.transport.mooncake_needs import check_mooncake
from tests.fakes.block_peer import content, cut, digest

ROOT = Path(__file__).parents[2]
KINDS = ("memory", "tcp", "c10d", "mooncake")
BETWEEN_PROCESSES = ("tcp", "c10d", "mooncake")
STOPS_AT_ONCE = ("memory", "tcp", "c10d")
"""Kinds whose source reads its own blocks: nobody reads after a withdrawal, whatever the reader does."""
MIB = 1 << 20


def missing(kind: str) -> str:
    """Why this kind cannot be tried here; empty: it can."""
    if kind == "mooncake":
        try:
            check_mooncake()
        except UserError as error:
            return str(error)
    return ""


def expected(sizes) -> str:
    """Digest of what an offer of these sizes from the beginning of an end's memory gives."""
    return digest(cut(content(sum(sizes) + 8), list(sizes)))


class End:
    """One transport with memory of its own."""

    def __init__(self, kind: str, size: int) -> None:
        self.transport = create_block_transport(TransportConfig(kv=kind), "127.0.0.1")
        self.memory = content(size)
        self.transport.register(self.memory)

    def blocks(self, sizes):
        return cut(self.memory, list(sizes))

    def offer(self, sizes, deadline_s=30.0):
        return self.transport.offer(self.blocks(sizes), deadline_s)

    def fetch(self, ticket, deadline_s=30.0):
        """The bytes that came."""
        self.memory[:] = 0
        blocks = self.blocks(ticket.sizes)
        self.transport.fetch(ticket, blocks, deadline_s)
        return digest(blocks)


class Peer:
    """An end in a process of its own."""

    def __init__(self, kind: str, size: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.block_peer", kind, str(size)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.answer()

    def order(self, **order):
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"dead": self.process.wait()}

    def ask(self, **order):
        self.order(**order)
        return self.answer()

    def offer(self, sizes, deadline_s=30.0, **more):
        return msgspec.convert(self.ask(do="offer", sizes=sizes, deadline_s=deadline_s, **more), Ticket)

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@contextmanager
def opened_ends() -> Iterator[Callable[..., End]]:
    """A maker of ends; they are closed afterwards."""
    opened: list[End] = []

    def make(kind: str, size: int = MIB) -> End:
        opened.append(End(kind, size))
        return opened[-1]

    yield make
    for one in opened:
        one.transport.close()
