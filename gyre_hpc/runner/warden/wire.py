"""What runner and warden say to each other: one JSON document per packet of a SOCK_SEQPACKET socket pair.

runner -> warden: Run, Halt.   keeper -> runner: Ended.   warden -> runner: Gone.
"""

import json
import socket
from dataclasses import asdict, dataclass
from typing import Any

PACKET_BYTES = 192 << 10
TAIL_BYTES = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """Start one harness."""

    id: str
    argv: list[str]
    environment: dict[str, str]
    folder: str
    """Working folder of the first process."""
    memory_mb: int
    address_space_mb: int
    """0: no limit."""
    max_processes: int
    disk_mb: int
    cpu_s: int
    depth: int
    """Processes of the sandbox between the first process and the harness."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Halt:
    """End one harness: SIGTERM to its first process, or (force) SIGKILL to everything."""

    id: str
    force: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """A harness and all below it are gone."""

    id: str
    code: int
    started: bool
    limit: str
    cpu_s: float
    tail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Gone:
    """The keeper is gone too. Without an Ended before it, it was killed."""

    id: str


_KINDS = {kind.__name__: kind for kind in (Run, Halt, Ended, Gone)}
Packet = Run | Halt | Ended | Gone


def encode(packet: Packet) -> bytes:
    """Raises ValueError if it does not fit into a packet."""
    data = json.dumps({"kind": type(packet).__name__, **asdict(packet)}).encode()
    if len(data) > PACKET_BYTES:
        raise ValueError(f"{type(packet).__name__} of {packet.id} has {len(data)} bytes; at most {PACKET_BYTES}")
    return data


def decode(data: bytes) -> Packet:
    fields: dict[str, Any] = json.loads(data)
    packet: Packet = _KINDS[fields.pop("kind")](**fields)
    return packet


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """(runner's end, warden's end)."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * PACKET_BYTES)
    return ours, theirs
