"""First words between a reader and the desk of a source (kv_desk.py): 4 bytes of length, then msgpack."""

import struct
from typing import TypeVar

import msgspec

from gyre_hpc.errors import TransferFailed
from gyre_hpc.transport.deadline_socket import DeadlineSocket

GREETING_S = 5.0
QUIET, STOP = b"q", b"s"
"""Later words: the reader reads no more; it is asked to stop."""
_MAX_MESSAGE = 4096
_Message = TypeVar("_Message", bound=msgspec.Struct)


class Claim(msgspec.Struct, frozen=True):
    """A reader's first words."""

    shown: str


class Answer(msgspec.Struct, frozen=True):
    """The desk's answer; `refused` is the reason why not."""

    shown: str = ""
    left_s: float = 0.0
    refused: str = ""


def send(peer: DeadlineSocket, message: msgspec.Struct) -> None:
    """Raises OSError."""
    data = msgspec.msgpack.encode(message)
    peer.sendall(struct.pack("<I", len(data)) + data)


def receive(peer: DeadlineSocket, kind: type[_Message]) -> _Message:
    """Raises TransferFailed on anything else than `kind`, OSError at the deadline."""
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
            raise TransferFailed("the other end closed the connection")
        buffer = buffer[count:]
