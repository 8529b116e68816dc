"""What the leader tells every rank of its cell, and what a rank answers. msgpack; nothing is unpickled."""

import msgspec

from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.to_batch import RankMemory


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


class Load(msgspec.Struct, frozen=True, tag=True):
    folder: str
    """Absolute path."""
    version: Version


class Init(msgspec.Struct, frozen=True, tag=True):
    version: Version


class Look(msgspec.Struct, frozen=True, tag=True):
    """Say how you are: the acknowledgement of an engine's role change too."""


class End(msgspec.Struct, frozen=True, tag=True):
    """No more commands."""


Command = Wake | Sleep | Zero | Add | SumBytes | TakeSum | Step | FitAll | Load | Init | Look | End


class Answer(msgspec.Struct, frozen=True):
    """One rank after one command."""

    memory: RankMemory
    pid: int
    cpu_s: float
    groups_built: int
    error: str = ""


TAKEN = b"taken"
"""Sent by a rank at once, before it does the command: a rank that is stuck is noticed by name, within a deadline."""

_COMMAND = msgspec.msgpack.Decoder(Command)
_ANSWER = msgspec.msgpack.Decoder(Answer)


def encode(message: Command | Answer) -> bytes:
    return msgspec.msgpack.encode(message)


def decode_command(data: bytes) -> Command:
    return _COMMAND.decode(data)


def decode_answer(data: bytes) -> Answer:
    return _ANSWER.decode(data)
