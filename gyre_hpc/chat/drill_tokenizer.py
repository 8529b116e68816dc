"""Byte-level tokenizer with marks and words: exact for every text, 2-4 tokens per short command.

Invariants: decode(encode(t)) == t and decode(encode_plain(t)) == t for every text without lone surrogates;
encode_plain never gives a mark's id; encode takes the longest mark or word at each place.
"""

import re
from collections.abc import Sequence

from gyre_hpc.chat.base import Tokenizer
from gyre_hpc.chat.drill_vocabulary import MARKS, WORDS
from gyre_hpc.chat.token_text import TextStream

_NUM_BYTES = 256


def _longest_first(pieces: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(piece) for piece in sorted(pieces, key=len, reverse=True)))


class DrillTokenizer(Tokenizer):
    """Ids 0-255 are bytes, then MARKS, then WORDS."""

    def __init__(self) -> None:
        pieces = (*MARKS, *WORDS)
        self.vocab_size = _NUM_BYTES + len(pieces)
        self._ids = {piece: _NUM_BYTES + i for i, piece in enumerate(pieces)}
        self.special = {mark: self._ids[mark] for mark in MARKS}
        self._bytes = [bytes([i]) for i in range(_NUM_BYTES)] + [piece.encode() for piece in pieces]
        self._all = _longest_first(pieces)
        self._words = _longest_first(WORDS)

    def encode(self, text: str) -> list[int]:
        return self._split(text, self._all)

    def encode_plain(self, text: str) -> list[int]:
        """Like `encode`, but marks in `text` stay bytes: for content that nobody vouches for."""
        return self._split(text, self._words)

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(map(self.bytes_of, ids)).decode("utf-8", errors="replace")

    def stream(self) -> TextStream:
        """For ids that arrive one after another."""
        return TextStream(self._bytes, drop_first_space=False)

    def bytes_of(self, id: int) -> bytes:
        return self._bytes[id] if 0 <= id < self.vocab_size else b""

    def _split(self, text: str, pattern: re.Pattern[str]) -> list[int]:
        ids: list[int] = []
        done = 0
        for match in pattern.finditer(text):
            ids += text[done : match.start()].encode("utf-8", errors="replace")
            ids.append(self._ids[match[0]])
            done = match.end()
        ids += text[done:].encode("utf-8", errors="replace")
        return ids
