"""What a reader and the desk of a source say to each other (kv_desk.py, kv_lines.py): 4 bytes of length, then msgpack; and two words of
one byte."""

import struct
from typing import TypeVar

import msgspec

from gyre_hpc.errors import TransferFailed
from gyre_hpc.transport.deadline_socket import DeadlineSocket

GREETING_S = 5.0
"""Between connecting and the first claim."""
QUIET, STOP = b"q", b"s"
"""The reader reads no more; it is asked to stop, and then this connection is not used again."""
_MAX_MESSAGE = 4096
_Message = TypeVar("_Message", bound=msgspec.Struct)


class Claim(msgspec.Struct, frozen=True):
    """A reader wants an offer."""

    shown: str
    """kv_proof.py"""
    line: str
    """Name of this connection, the same in each of its claims."""


class Answer(msgspec.Struct, frozen=True):
    """What the desk says to it; `refused` is the reason why not."""

    shown: str = ""
    left_s: float = 0.0
    """For how long the offer stands."""
    refused: str = ""


def send(peer: DeadlineSocket, message: msgspec.Struct) -> None:
    """Raises OSError."""
    data = msgspec.msgpack.encode(message)
    peer.sendall(struct.pack("<I", len(data)) + data)


def receive(peer: DeadlineSocket, kind: type[_Message]) -> _Message:
    """Raises TransferFailed on anything else than `kind`, OSError at the deadline and when the other end is gone."""
    head = bytearray(4)
    _fill(peer, memoryview(head))
    (length,) = struct.unpack("<I", head)
    if length > _MAX_MESSAGE:
        raise TransferFailed(f"{length} bytes are no greeting")
    data = bytearray(length)
    _fill(peer, memoryview(data))
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise TransferFailed(f"no greeting: {error}") from error


def _fill(peer: DeadlineSocket, buffer: memoryview) -> None:
    while buffer:
        count = peer.recv_into(buffer)
        if not count:
            raise ConnectionError("the other end closed the connection")
        buffer = buffer[count:]
