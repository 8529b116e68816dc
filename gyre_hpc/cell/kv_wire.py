"""What two cells say to each other about KV: bodies of POST /kv/..., msgpack. Nothing is unpickled.

    /kv/wanted  Ask   -> Room    which blocks are there, which are taken; room is reserved until the deadline
    /kv/take    Take  -> Taken   fetch some of the wanted ones from where they are offered, check and publish them
    /kv/drop    Drop  -> 204     no more will come

400 with the field for a body that is wrong in itself; a reservation that is over is no error.
"""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from gyre_hpc.engines.base import Block, KvHeader
from gyre_hpc.transport.kv_base import Ticket

MAX_BODY_BYTES = 16 << 20
"""An Ask of 100,000 blocks."""
LONGEST_S = 600.0
"""No reservation lasts longer."""


class Offered(msgspec.Struct, frozen=True):
    """One rank's part of some blocks. A rank without pages, or whose pages have no bytes (timed), has no ticket."""

    ticket: Ticket | None = None
    checksums: tuple[int, ...] = ()
    """CRC-32 of each block."""
    trouble: str = ""
    """Why nothing is offered."""


class Fetched(msgspec.Struct, frozen=True):
    """What one rank got of some blocks."""

    bad: tuple[int, ...] = ()
    """Places whose content is not what was offered."""
    trouble: str = ""
    """Why nothing came at all."""


class Ask(msgspec.Struct, frozen=True):
    source: str
    """Cell that would send."""
    header: KvHeader
    blocks: tuple[Block, ...]
    """Parents first."""
    deadline_s: float
    """The reservation ends by itself then."""


class Room(msgspec.Struct, frozen=True):
    reservation: int
    """0: nothing is taken, as `reason` says."""
    wanted: tuple[int, ...] = ()
    num_blocks: int = 0
    """Leading blocks that are there or wanted."""
    reason: str = ""


class Take(msgspec.Struct, frozen=True):
    reservation: int
    start: int
    end: int
    """Places [start, end) among the wanted blocks."""
    offers: tuple[Offered, ...]
    """By rank."""
    deadline_s: float


class Taken(msgspec.Struct, frozen=True):
    published: tuple[int, ...] = ()
    """Places that can be found there since then."""
    trouble: str = ""


class Drop(msgspec.Struct, frozen=True):
    reservation: int


Body = TypeVar("Body", bound=msgspec.Struct)


class BadBody(Exception):
    """A body is wrong in itself; the text names the field."""


def encode(body: msgspec.Struct) -> bytes:
    return msgspec.msgpack.encode(body)


def decode(kind: type[Body], data: bytes, check: Callable[[Body], str] = lambda body: "") -> Body:
    """Raises BadBody. check: what is wrong with it, by field."""
    if len(data) > MAX_BODY_BYTES:
        raise BadBody(f"body: {len(data)} bytes; send at most {MAX_BODY_BYTES}")
    try:
        body = msgspec.msgpack.decode(data, type=kind)
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadBody(f"{kind.__name__}: {error}") from None
    problem = check(body)
    if problem:
        raise BadBody(f"{kind.__name__}.{problem}")
    return body


def bad_deadline(deadline_s: float) -> str:
    """What is wrong with a deadline; empty: nothing."""
    good = math.isfinite(deadline_s) and 0 < deadline_s <= LONGEST_S
    return "" if good else f"deadline_s={deadline_s!r}: make it more than 0 and at most {LONGEST_S:g}"


def check_room(room: Room, blocks: tuple[Any, ...]) -> str:
    """What is wrong with a target's answer about `blocks`."""
    if not 0 <= room.num_blocks <= len(blocks):
        return f"num_blocks={room.num_blocks}: {len(blocks)} were asked for"
    if list(room.wanted) != sorted(set(room.wanted)) or not all(0 <= index < room.num_blocks for index in room.wanted):
        return f"wanted: make it rising indices below {room.num_blocks}"
    return ""
