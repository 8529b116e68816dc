"""Tokens as bytes, and bytes as text while they arrive.

Why not the library's decoder: a parser must know which tokens hold which characters, and a character may be split over
tokens. Invariant: the pieces of a TextStream, joined, are the text of all its ids together, and of no others.
"""

import codecs
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gyre_hpc.errors import UserError

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_WORD_START = "\N{LOWER ONE EIGHTH BLOCK}"
"""How SentencePiece writes a space."""


def _byte_letters() -> dict[str, int]:
    """Letter -> byte of byte-level BPE: printable Latin-1 stands for itself, the other bytes for letters from U+0100 on."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(0x100 + place): byte for place, byte in enumerate(others)}


_LETTERS = _byte_letters()


def token_bytes(decoder: Mapping[str, Any] | None, vocabulary: Mapping[str, int], added: Mapping[str, int], field: str) -> list[bytes]:
    """Bytes of each id; ids without a token are empty. `decoder`: as tokenizer.json has it; `added` tokens stand for themselves.

    Raises UserError for a decoder that works on no bytes: its tokens have no text of their own.
    """
    kinds = _decoders(decoder)
    if "ByteLevel" in kinds:
        spell = _from_letters
    elif "ByteFallback" in kinds:
        spell = _from_word
    else:
        raise UserError(field, " ".join(kinds) or "no decoder", "its tokens stand for no bytes; take a byte-level or byte-fallback BPE")
    table = [b""] * (max([*vocabulary.values(), *added.values()], default=-1) + 1)
    for token, id in vocabulary.items():
        table[id] = spell(token)
    for token, id in added.items():
        table[id] = token.encode()
    return table


def drops_first_space(decoder: Mapping[str, Any] | None) -> bool:
    """Whether decoding strips the space that encoding put before the first word."""
    return "Strip" in _decoders(decoder)


class TextStream:
    """Text of ids that arrive one after another; remembers where each token ends."""

    def __init__(self, table: Sequence[bytes], *, drop_first_space: bool) -> None:
        self._table, self._size = table, len(table)
        self._drop = drop_first_space
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._ends: list[int] = []
        self._length = 0

    def push(self, ids: Iterable[int]) -> str:
        """Characters that are complete with these ids; ids without a token say nothing."""
        pieces = []
        for id in ids:
            piece = self._decoder.decode(self._table[id] if 0 <= id < self._size else b"")
            pieces.append(self._kept(piece))
            self._length += len(pieces[-1])
            self._ends.append(self._length)
        return "".join(pieces)

    def end(self) -> str:
        """What is left of a character that was never completed: U+FFFD, or nothing."""
        piece = self._kept(self._decoder.decode(b"", final=True))
        if piece:
            self._length += len(piece)
            self._ends[-1] = self._length
        return piece

    def tokens(self, start: int, end: int) -> tuple[int, int]:
        """Tokens [first, last + 1) that hold characters [start, end), which begin and end with ASCII."""
        return bisect_right(self._ends, start), bisect_right(self._ends, end - 1) + 1

    def _kept(self, piece: str) -> str:
        if self._drop and piece:
            self._drop = False
            return piece.removeprefix(" ")
        return piece


def _decoders(decoder: Mapping[str, Any] | None) -> tuple[str, ...]:
    if decoder is None:
        return ()
    if decoder.get("type") == "Sequence":
        return tuple(kind for inner in decoder["decoders"] for kind in _decoders(inner))
    return (str(decoder.get("type")),)


def _from_letters(token: str) -> bytes:
    try:
        return bytes(map(_LETTERS.__getitem__, token))
    except KeyError:  # not all letters: the token stands for itself
        return token.encode()


def _from_word(token: str) -> bytes:
    match = _BYTE_TOKEN.fullmatch(token)
    return bytes([int(match[1], 16)]) if match else token.replace(_WORD_START, " ").encode()
