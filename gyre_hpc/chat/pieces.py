"""Text -> ids in pieces, so that what many prompts share (system prompt, tools, earlier turns) is tokenised once.

A text is cut before special tokens, where tokenisation is exact: the tokenizer itself splits there before it does anything else.
Equal pieces come from a cache bounded in bytes, oldest use first out. One thread uses it.
"""

import re
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from tokenizers import AddedToken

from gyre_hpc.chat.hf_tokenizer import HfTokenizer

_OVERHEAD = 300
"""Bytes of an entry beyond its text and ids."""


class PieceEncoder:
    """Encodes like the tokenizer itself, faster for what it has seen."""

    def __init__(self, tokenizer: HfTokenizer, marks: Iterable[str], *, max_bytes: int = 64 << 20) -> None:
        """`marks`: special tokens a template writes; those at which a cut would not be exact are left out."""
        self._tokenizer = tokenizer
        cuts = [mark for mark in marks if _is_exact(mark, tokenizer.added)]
        self._cut = re.compile("|".join(map(re.escape, sorted(cuts, key=len, reverse=True)))) if cuts else None
        self._max_bytes = max_bytes
        self._known: OrderedDict[str, array[int]] = OrderedDict()
        self.num_bytes = 0
        """What the cache holds."""
        self.num_encoded = 0
        """Characters that had to be tokenised so far."""

    def encode(self, text: str) -> list[int]:
        pieces = self._pieces(text)
        fresh = {piece: None for piece in pieces if piece not in self._known}
        encoded = {}
        if fresh:
            encoded = {piece: array("i", ids) for piece, ids in zip(fresh, self._tokenizer.encode_all(list(fresh)), strict=True)}
        ids: list[int] = []
        for piece in pieces:
            ids.extend(encoded[piece] if piece in encoded else self._used(piece))
        for piece, piece_ids in encoded.items():
            self._remember(piece, piece_ids)
        return ids

    def _pieces(self, text: str) -> Sequence[str]:
        if self._cut is None:
            return [text]
        places = [match.start() for match in self._cut.finditer(text)]
        return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True) if end > start]

    def _used(self, piece: str) -> "array[int]":
        self._known.move_to_end(piece)
        return self._known[piece]

    def _remember(self, piece: str, ids: "array[int]") -> None:
        self.num_encoded += len(piece)
        self._known[piece] = ids
        self.num_bytes += _size(piece, ids)
        while self.num_bytes > self._max_bytes:
            self.num_bytes -= _size(*self._known.popitem(last=False))


def _size(piece: str, ids: "array[int]") -> int:
    return len(piece.encode("utf-8", "replace")) + 4 * len(ids) + _OVERHEAD


def _is_exact(mark: str, added: dict[str, AddedToken]) -> bool:
    """Whether the tokenizer finds `mark` wherever it stands: nothing swallows space before it, no other token overlaps it."""
    token = added[mark]
    if token.lstrip or token.single_word or token.normalized:
        return False
    for other in added:
        if other != mark and (mark in other[1:] or any(other.endswith(mark[:length]) for length in range(1, len(mark)))):
            return False
    return True
