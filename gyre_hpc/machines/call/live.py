"""A call while somebody waits for it, or work for it goes on. Its recorded side is a Node.

    rendering ─▶ waiting ⇄ sampling ─▶ closing ─▶ ended
                    ▲         │
                    └ suspended ◀┘   (abort, refusal or loss of a cell: from sampling back to waiting)

suspended: given up, or begun before a restart of the gateway; the same request takes it up again.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gyre_hpc.chat.base import Answer
from gyre_hpc.machines.call.actions import Arrived
from gyre_hpc.machines.call.node import Found, Node
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.journal import VersionSpan
from gyre_hpc.protocol.to_gateway import Row


class CallState(enum.Enum):
    """Lifecycle, drawn above."""

    rendering = "rendering"
    waiting = "waiting"
    sampling = "sampling"
    closing = "closing"
    ended = "ended"
    suspended = "suspended"


@dataclass(slots=True)
class Piece:
    """Tokens received and not yet handed to the journal."""

    logprobs: bytearray = field(default_factory=bytearray)
    spans: list[VersionSpan] = field(default_factory=list)
    oldest_kv: Version | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What of a request is needed until its call ends. After a restart it comes with the retry, which is the same request."""

    tools: tuple[dict[str, Any], ...] = ()
    store: bool = False
    messages: tuple[bytes, ...] = ()
    """store: its own messages, packed (shelf.py)."""
    previous: str = ""
    instructed: bool = False
    echo: tuple[bytes, ...] = ()


@dataclass(slots=True, eq=False)
class LiveCall:
    """Bookkeeping of one call. Keys name the action whose result is awaited; other results are late and ignored."""

    call: str
    execution: str
    state: CallState
    since: float
    """When this try of it began (deadline)."""
    node: Node | None = None
    """None while rendering."""
    request: Arrived | None = None
    """Until it is rendered; with the whole conversation."""
    asked: Asked = field(default_factory=Asked)
    found: Found | None = None
    conn: str = ""
    """Connection that waits for the answer; empty when there is none."""
    row: Row | None = None
    """Cell of the attempt that runs."""
    attempt_key: str = ""
    has_tokens: bool = False
    """The attempt that runs has given some."""
    refusals: int = 0
    piece: Piece = field(default_factory=Piece)
    issued: int = 0
    """Output tokens handed to the journal."""
    durable: int = 0
    """Output tokens the journal has for certain."""
    finish: str = ""
    render_key: str = ""
    parse_key: str = ""
    delta_key: str = ""
    answer: Answer | None = None
    """Parsed, with minted ids."""
    diverges: bool = False
    """What was recorded goes on in another way."""
    is_claimed: bool = False
    """It is of an earlier life, and that it was asked for again is not durable yet: nothing of it may leave."""
    said: str = ""
    """Text a streaming client was given on the present connection."""
    said_reasoning: str = ""

    @property
    def recorded(self) -> Node:
        """Its node; only before it is rendered there is none."""
        assert self.node is not None, f"{self.call} has no node yet"
        return self.node


@dataclass(slots=True, eq=False)
class Conn:
    """An open connection of a client and the call it waits for."""

    execution: str
    call: str
    stream: bool
    is_closing: bool = False
    """Its last words are being written."""
    is_held: bool = False
    """Not streamed, and its body has begun: an error has no status any more, so a refusal breaks the connection."""
    is_inquiry: bool = False
    """It asks about a stored answer; the call does not work for it."""


class Conns:
    """Open connections, by name and by execution: a shard has thousands, an execution a few."""

    def __init__(self) -> None:
        self._all: dict[str, Conn] = {}
        self._of: dict[str, dict[str, Conn]] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._all

    def __len__(self) -> int:
        return len(self._all)

    def __setitem__(self, name: str, conn: Conn) -> None:
        self._all[name] = conn
        self._of.setdefault(conn.execution, {})[name] = conn

    def get(self, name: str) -> Conn | None:
        return self._all.get(name)

    def pop(self, name: str) -> Conn | None:
        """Forget it, if it is known."""
        conn = self._all.pop(name, None)
        if conn is not None:
            its = self._of[conn.execution]
            del its[name]
            if not its:
                del self._of[conn.execution]
        return conn

    def of(self, execution: str) -> Mapping[str, Conn]:
        """Those of one execution."""
        return self._of.get(execution, {})
