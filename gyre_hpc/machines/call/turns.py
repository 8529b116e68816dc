"""Digests of messages: what the recorded tree compares instead of texts. O(bytes) once per request, computed by the shell."""

import functools
import hashlib
from collections.abc import Callable, Sequence

import msgspec

from gyre_hpc.chat.base import Message

SIZE = 16
Canonical = Callable[[str], str]


class Turn(msgspec.Struct, frozen=True):
    """One message, digested."""

    role: str
    digest: bytes
    """Over role, content, tool calls (ids included) and the id it answers."""
    text: str = ""
    """assistant: hex digest of its exact content."""
    calls: tuple[str, ...] = ()
    """assistant: ids of its tool calls."""
    answers: str = ""
    """tool: id of the call it answers."""
    thinking: bytes = b""
    """assistant: digest of its reasoning. Counts only where the turn is no recorded answer: then it is part of what is rendered."""
    call: str = ""
    """assistant: the recorded call whose answer it is, where that is known (a stored answer)."""
    likeness: bytes = b""
    """`digest` of its canonical form, where that is another."""


def digest(*pieces: bytes) -> bytes:
    """Short digest of a tuple of byte strings; no two different tuples run into each other."""
    framed = b"".join([part for piece in pieces for part in (len(piece).to_bytes(8, "little"), piece)])
    return hashlib.blake2b(framed, digest_size=SIZE).digest()


chained = functools.lru_cache(maxsize=1 << 12)(digest)
"""digest of short pieces that come again with every request of a conversation: digests of digests, call ids."""


def text_digest(text: str) -> str:
    """Hex digest of an answer's text; lone surrogates (JSON allows them) count as themselves."""
    return digest(text.encode("utf-8", "surrogatepass")).hex()


def digest_turns(messages: Sequence[Message], canonical: Canonical = str) -> tuple[Turn, ...]:
    """One Turn per message. `canonical`: its text without what differs between two processes that do the same."""
    return tuple(_turn(message, canonical) for message in messages)


def likeness_of(*what: bytes, turns: Sequence[Turn]) -> str:
    """Hex digest of `what` and a conversation in its canonical form."""
    return digest(*what, *[piece for turn in turns for piece in (turn.likeness or turn.digest, turn.thinking)]).hex()


def _turn(message: Message, canonical: Canonical) -> Turn:
    whole, text = _digested(message, message.content), canonical(message.content)
    likeness = _digested(message, text) if text != message.content else b""
    if message.role != "assistant":
        return Turn(message.role, whole, answers=message.tool_call_id, likeness=likeness)
    thinking = digest(message.reasoning.encode("utf-8", "surrogatepass")) if message.reasoning else b""
    calls = tuple(call.id for call in message.tool_calls)
    return Turn(message.role, whole, text=text_digest(message.content), calls=calls, thinking=thinking, likeness=likeness)


def _digested(message: Message, content: str) -> bytes:
    pieces = [message.role, content, message.tool_call_id]
    for call in message.tool_calls:
        pieces += [call.id, call.name, call.arguments]
    return digest(*(piece.encode("utf-8", "surrogatepass") for piece in pieces))
