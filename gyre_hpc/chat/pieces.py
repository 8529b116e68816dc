"""Text -> ids in pieces, so that what many prompts share (system prompt, tools, earlier turns) is tokenised once.

A text is cut before special tokens, where tokenisation is exact: the tokenizer itself splits there before it does anything else.
A new piece is cut once more at line ends, where the tokenizer's pattern allows it (lines.py).
"""

import re
import threading
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
        self._line_cut = tokenizer.lines
        self._pieces, self._lines = _Cache(max_bytes // 2), _Cache(max_bytes // 2)
        self.num_encoded = 0
        """Characters that had to be tokenised so far."""

    @property
    def num_bytes(self) -> int:
        """What the caches hold."""
        return self._pieces.num_bytes + self._lines.num_bytes

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for piece in self._cut_at_marks(text):
            piece_ids = self._pieces.get(piece)
            if piece_ids is None:
                piece_ids = self._encoded(piece)
                self._pieces.put(piece, piece_ids)
            ids.extend(piece_ids)
        return ids

    def _cut_at_marks(self, text: str) -> Sequence[str]:
        if self._cut is None:
            return [text]
        places = [match.start() for match in self._cut.finditer(text)]
        return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True) if end > start]

    def _encoded(self, piece: str) -> "array[int]":
        """By lines where their tokens are known to be those of the whole."""
        lines = self._line_cut.split(piece) if self._line_cut is not None else [piece]
        if len(lines) == 1:
            (only,) = self._tokenised(lines)
            return only
        known = {line: self._lines.get(line) for line in lines}
        fresh = [line for line, ids in known.items() if ids is None]
        for line, ids in zip(fresh, self._tokenised(fresh), strict=True):
            known[line] = ids
            self._lines.put(line, ids)
        whole = array("i")
        for line in lines:
            whole.extend(known[line] or ())
        return whole

    def _tokenised(self, texts: Sequence[str]) -> "list[array[int]]":
        self.num_encoded += sum(map(len, texts))
        return [array("i", ids) for ids in self._tokenizer.encode_all(texts)] if texts else []


class _Cache:
    """Ids by text, bounded in bytes, oldest use first out. Long prompts are encoded in a thread of their own."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._known: OrderedDict[str, array[int]] = OrderedDict()
        self._lock = threading.Lock()
        self.num_bytes = 0

    def get(self, text: str) -> "array[int] | None":
        with self._lock:
            ids = self._known.get(text)
            if ids is not None:
                self._known.move_to_end(text)
            return ids

    def put(self, text: str, ids: "array[int]") -> None:
        with self._lock:
            if text in self._known:
                return
            self._known[text] = ids
            self.num_bytes += _size(text, ids)
            while self.num_bytes > self._max_bytes:
                self.num_bytes -= _size(*self._known.popitem(last=False))


def _size(text: str, ids: "array[int]") -> int:
    return len(text.encode("utf-8", "replace")) + 4 * len(ids) + _OVERHEAD


def _is_exact(mark: str, added: dict[str, AddedToken]) -> bool:
    """Whether the tokenizer finds `mark` wherever it stands: nothing swallows space before it, no other token overlaps it."""
    token = added[mark]
    if token.lstrip or token.single_word or token.normalized:
        return False
    for other in added:
        if other != mark and (mark in other[1:] or any(other.endswith(mark[:length]) for length in range(1, len(mark)))):
            return False
    return True
