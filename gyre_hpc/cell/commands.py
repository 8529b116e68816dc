"""What the leader tells every rank of its cell, and what a rank answers. msgpack; nothing is unpickled."""

import msgspec

from gyre_hpc.cell.kv_wire import Offered
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.to_batch import RankMemory
from gyre_hpc.transport.kv_base import Ticket


class Wake(msgspec.Struct, frozen=True, tag=True):
    """Trainer takes `version`; a rank whose own store lacks it pulls it from `source` (the leader's store)."""

    version: Version
    restore: bool
    source: str
    deadline_s: float


class Sleep(msgspec.Struct, frozen=True, tag=True):
    keep: bool


class Zero(msgspec.Struct, frozen=True, tag=True):
    pass


class Add(msgspec.Struct, frozen=True, tag=True):
    """Accumulate a micro-batch (its msgpack)."""

    micro_batch: bytes


class SumBytes(msgspec.Struct, frozen=True, tag=True):
    """The cell's sum as bytes, awake or kept."""


class TakeSum(msgspec.Struct, frozen=True, tag=True):
    """The cell's sum, awake."""


class Step(msgspec.Struct, frozen=True, tag=True):
    """Optimizer step; the total is in the leader's scratch."""

    num_executions: int
    version: Version


class FitAll(msgspec.Struct, frozen=True, tag=True):
    micro_batches: tuple[bytes, ...]
    epochs: int
    version: Version


class Pull(msgspec.Struct, frozen=True, tag=True):
    """A rank whose own store lacks `version` pulls it from `source` (the leader's store, which has it)."""

    version: Version
    source: str
    deadline_s: float


class Save(msgspec.Struct, frozen=True, tag=True):
    """Write a checkpoint. Every rank gives what it has; the leader writes."""

    folder: str
    """Absolute path."""
    state: bytes
    """JSON."""


class Load(msgspec.Struct, frozen=True, tag=True):
    folder: str
    """Absolute path."""
    version: Version


class Init(msgspec.Struct, frozen=True, tag=True):
    version: Version


class Look(msgspec.Struct, frozen=True, tag=True):
    """Say how you are: the acknowledgement of an engine's role change too."""


class KvOffer(msgspec.Struct, frozen=True, tag=True):
    """Make blocks of a lease readable. Result of every rank: Offered."""

    lease: int
    indices: tuple[int, ...]
    deadline_s: float


class KvFetch(msgspec.Struct, frozen=True, tag=True):
    """Fetch blocks into the places [start, end) of a reservation. Result of every rank: Fetched."""

    reservation: int
    start: int
    end: int
    offers: tuple[Offered, ...]
    """By rank."""
    deadline_s: float


class KvWithdraw(msgspec.Struct, frozen=True, tag=True):
    """End offers. Result of every rank: bool, nobody reads any more."""

    tickets: tuple[tuple[Ticket, ...], ...]
    """By rank."""


class KvReady(msgspec.Struct, frozen=True, tag=True):
    """The engine has woken: make its memory known to the transport. Result of every rank: str, what went wrong."""


class KvEnd(msgspec.Struct, frozen=True, tag=True):
    """The engine is about to sleep: let go of its memory. Result of every rank: None."""


class End(msgspec.Struct, frozen=True, tag=True):
    """No more commands."""


KvCommand = KvReady | KvOffer | KvFetch | KvWithdraw | KvEnd
Command = Wake | Sleep | Zero | Add | SumBytes | TakeSum | Step | FitAll | Pull | Save | Load | Init | Look | End | KvCommand


class Answer(msgspec.Struct, frozen=True):
    """One rank after one command."""

    memory: RankMemory
    pid: int
    cpu_s: float
    groups_built: int
    snapshots: tuple[Version, ...] = ()
    """In this rank's store."""
    error: str = ""
    server_pids: tuple[int, ...] = ()
    """Of the part of the cell's server that this rank holds beside its leader's."""
    result: bytes = b""
    """Of commands whose result every rank gives (Kv...), msgpack."""


class Told(bytes):
    """A result that the leader needs of every rank."""


TAKEN = b"taken"
"""Sent by a rank at once, before it does the command: a rank that is stuck is noticed by name, within a deadline."""
WORKING = b"working"
"""Sent again and again while it does the command: one that falls silent in a command of an hour is noticed as soon."""

_COMMAND = msgspec.msgpack.Decoder(Command)
_ANSWER = msgspec.msgpack.Decoder(Answer)


def encode(message: Command | Answer) -> bytes:
    return msgspec.msgpack.encode(message)


def decode_command(data: bytes) -> Command:
    return _COMMAND.decode(data)


def decode_answer(data: bytes) -> Answer:
    return _ANSWER.decode(data)
