"""What a cell's leader and the keeper of its server say to each other: one JSON object a line, over a Unix stream socket."""

import msgspec


class Hold(msgspec.Struct, frozen=True, kw_only=True, tag="hold"):
    """Leader that starts a keeper, first line: the server to start and how long to hold it."""

    digest: str
    """Of the launch."""
    nonce: str
    """Of this start."""
    argv: tuple[str, ...]
    """Without port and key."""
    environ: dict[str, str]
    folder: str
    host: str = "127.0.0.1"
    """Where it listens."""
    port: int
    bootstrap_port: int = 0
    """0: it has none."""
    key: str
    is_first: bool
    """It has SGLang's API, and so the key; the servers of a cell's other nodes only say that they are well."""
    root_pid: int
    root_born: int
    start_deadline_s: float
    orphan_s: float
    end_s: float
    log: str
    log_bytes: int


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """Leader that finds a keeper, first line. One of another launch does not hold the server."""

    digest: str


class End(msgspec.Struct, frozen=True, kw_only=True, tag="end"):
    """End the server."""


class Status(msgspec.Struct, frozen=True, kw_only=True, tag="status"):
    """Answer to Hello."""

    digest: str
    nonce: str
    keeper: int
    """Its pid."""
    port: int
    key: str
    is_well: bool


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """The server answers."""


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag="ended"):
    """Last line: no process of the server is left."""

    why: str
    tail: str
    """Its last words."""
    port_was_taken: bool = False
    """Another program had its port: at another one it may do well."""
    found_flags_wrong: bool = False
    """It refused its command line: it will again."""


Message = Hold | Hello | End | Status | Ready | Ended
_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


def encode(message: Message) -> bytes:
    return msgspec.json.encode(message) + b"\n"


def decode(line: bytes) -> Message:
    """Raises msgspec.DecodeError."""
    return _decoder.decode(line)


class Lines:
    """Bytes as they come -> whole lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines
