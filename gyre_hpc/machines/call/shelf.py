"""What stored answers hold, each message and each long piece once per execution: clients that send a whole conversation with
every request, and have every answer stored, make the journal grow with what is new.

Conversations are chains of messages under a running digest, so that one that begins like another goes on from there
(Stored.base). Only what is durable is referred to. Invariant: a record refers to earlier records of its execution alone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed

import msgspec

from gyre_hpc.chat.base import Message
from gyre_hpc.machines.call.turns import digest
from gyre_hpc.protocol.journal import Echoed, Stored

SHORT = 64
"""Bytes. A piece that is no longer is repeated."""
_ENCODER = msgspec.msgpack.Encoder()
_MESSAGES = msgspec.msgpack.Decoder(tuple[Message, ...])
_RAW = msgspec.msgpack.Decoder(tuple[msgspec.Raw, ...])


@dataclass(frozen=True, slots=True)
class _Page:
    """One message of a conversation."""

    before: bytes
    """Digest of the conversation before it; empty at its beginning."""
    message: bytes


class Shelf:
    """Of one execution."""

    def __init__(self) -> None:
        self._pages: dict[bytes, _Page] = {}
        """By the running digest that ends with it."""
        self._pieces: dict[bytes, bytes] = {}
        """Long pieces of what protocols want back, by digest."""

    def split(self, packed: Sequence[bytes]) -> tuple[bytes, bytes]:
        """Packed messages -> (Stored.base, Stored.messages)."""
        base, known = b"", 0
        for state in _states(b"", packed):
            if state not in self._pages:
                break
            base, known = state, known + 1
        return base, _ENCODER.encode([msgspec.Raw(message) for message in packed[known:]])

    def echoed(self, pieces: Iterable[bytes]) -> tuple[Echoed, ...]:
        """What a protocol wants back, as Stored has it."""
        return tuple(self._echoed(piece) for piece in pieces)

    def take(self, record: Stored) -> None:
        """A record is durable. Raises KeyError if what it refers to never was."""
        if record.base and record.base not in self._pages:
            raise KeyError(f"stored answer of {record.call} goes on from messages that no earlier record holds")
        messages = [bytes(message) for message in _RAW.decode(record.messages)] if record.messages else []
        state = record.base
        for message, after in zip(messages, _states(record.base, messages), strict=True):
            self._pages[after] = _Page(state, message)
            state = after
        for piece in record.echoes:
            if piece.digest and piece.data:
                self._pieces[piece.digest] = piece.data

    def messages(self, record: Stored) -> tuple[Message, ...]:
        """All messages of a record's own request."""
        found: list[bytes] = []
        state = record.base
        while state:
            page = self._pages[state]
            found.append(page.message)
            state = page.before
        head = _MESSAGES.decode(_ENCODER.encode([msgspec.Raw(message) for message in reversed(found)]))
        return head + (_MESSAGES.decode(record.messages) if record.messages else ())

    def echo(self, record: Stored) -> tuple[bytes, ...]:
        """What the protocol wanted back with it."""
        if record.echo:
            return (record.echo,)
        return tuple(self._pieces[piece.digest] if piece.digest else piece.data for piece in record.echoes)

    def _echoed(self, piece: bytes) -> Echoed:
        if len(piece) <= SHORT:
            return Echoed(b"", piece)
        name = digest(piece)
        return Echoed(name) if name in self._pieces else Echoed(name, piece)


def pack_messages(messages: Iterable[Message]) -> tuple[bytes, ...]:
    """One by one, as Stored holds them. Lone surrogates, which JSON allows and msgpack does not, become question marks."""
    return tuple(_packed(message) for message in messages)


def _packed(message: Message) -> bytes:
    try:
        return _ENCODER.encode(message)
    except UnicodeEncodeError:
        return _ENCODER.encode(_speakable(message))


def _speakable(message: Message) -> Message:
    calls = tuple(
        changed(call, name=_plain(call.name), arguments=_plain(call.arguments), id=_plain(call.id)) for call in message.tool_calls
    )
    return changed(
        message,
        content=_plain(message.content),
        tool_calls=calls,
        tool_call_id=_plain(message.tool_call_id),
        name=_plain(message.name),
        reasoning=_plain(message.reasoning),
    )


def _plain(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _states(state: bytes, packed: Iterable[bytes]) -> Iterable[bytes]:
    """Running digest after each message."""
    for message in packed:
        state = digest(state, message)
        yield state
