"""Digests of messages: what the recorded tree compares instead of texts. O(bytes) once per request, computed by the shell."""

import functools
import hashlib
from collections.abc import Sequence

import msgspec

from gyre_hpc.chat.base import Message

SIZE = 16


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


def digest(*pieces: bytes) -> bytes:
    """Short digest of a tuple of byte strings; no two different tuples run into each other."""
    framed = b"".join([part for piece in pieces for part in (len(piece).to_bytes(8, "little"), piece)])
    return hashlib.blake2b(framed, digest_size=SIZE).digest()


chained = functools.lru_cache(maxsize=1 << 16)(digest)
"""digest of short pieces that come again with every request of a conversation: digests of digests, call ids."""


def text_digest(text: str) -> str:
    """Hex digest of an answer's text; lone surrogates (JSON allows them) count as themselves."""
    return digest(text.encode("utf-8", "surrogatepass")).hex()


def digest_turns(messages: Sequence[Message]) -> tuple[Turn, ...]:
    """One Turn per message."""
    return tuple(_turn(message) for message in messages)


def _turn(message: Message) -> Turn:
    pieces = [message.role, message.content, message.tool_call_id]
    for call in message.tool_calls:
        pieces += [call.id, call.name, call.arguments]
    whole = digest(*(piece.encode("utf-8", "surrogatepass") for piece in pieces))
    if message.role != "assistant":
        return Turn(message.role, whole, answers=message.tool_call_id)
    thinking = digest(message.reasoning.encode("utf-8", "surrogatepass")) if message.reasoning else b""
    calls = tuple(call.id for call in message.tool_calls)
    return Turn(message.role, whole, text=text_digest(message.content), calls=calls, thinking=thinking)
