"""Token ids as JSON text. A prompt begins with what the last one of its conversation was: that text is remembered.

Writing 200,000 ids costs more than everything else a gateway does with a long conversation. A memory of what can be made again.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import orjson

MOST_BYTES = 128 << 20
"""Of text and packed ids kept."""
_MOST_BRANCHES = 3
"""Conversations of one execution that grow side by side."""
_NEW_PIECES = 4
"""A prompt that drops no more than so many pieces of the last one takes its place: an answer and what followed, or a side question."""
_OVERHEAD = 250
"""Bytes of a piece beyond its ids and text."""


def as_text(packed: bytes) -> bytes:
    """Packed ids -> `1,2,3`."""
    return orjson.dumps(np.frombuffer(packed, dtype="<i4"), option=orjson.OPT_SERIALIZE_NUMPY)[1:-1]


@dataclass(slots=True)
class _Known:
    """One prompt. `text` has a comma behind every id."""

    pieces: list[bytes] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    """Where the text of each piece ends."""
    text: bytearray = field(default_factory=bytearray)
    num_bytes: int = 0

    def common(self, pieces: list[bytes]) -> int:
        """How many pieces both begin with."""
        if pieces[: len(self.pieces)] == self.pieces:
            return len(self.pieces)
        return next((place for place, (mine, theirs) in enumerate(zip(self.pieces, pieces, strict=False)) if mine != theirs), len(pieces))

    def beginning(self, num: int) -> "_Known":
        """A copy of its first pieces."""
        ends = self.ends[:num]
        size = ends[-1] if num else 0
        num_bytes = sum(map(len, self.pieces[:num])) + size + num * _OVERHEAD
        return _Known(self.pieces[:num], ends, self.text[:size], num_bytes)

    def cut(self, num: int) -> None:
        """Keep the first pieces."""
        for piece in self.pieces[num:]:
            self.num_bytes -= len(piece) + _OVERHEAD
        size = self.ends[num - 1] if num else 0
        self.num_bytes -= len(self.text) - size
        del self.pieces[num:], self.ends[num:], self.text[size:]

    def extend(self, pieces: list[bytes]) -> None:
        before = len(self.text)
        for piece in pieces:
            self.text += as_text(piece) + b","
            self.pieces.append(piece)
            self.ends.append(len(self.text))
            self.num_bytes += len(piece) + _OVERHEAD
        self.num_bytes += len(self.text) - before


class IdsText:
    """JSON lists of ids, with a memory per execution."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes, self._num_bytes = most_bytes, 0
        self._known: OrderedDict[str, list[_Known]] = OrderedDict()
        """The execution used last is last, and so is the conversation of an execution."""

    def list_of(self, execution: str, prompt: Sequence[bytes], head: bytes = b"", tail: bytes = b"") -> bytes:
        """Pieces of packed ids -> one JSON list; between `head` and `tail`, which spares a copy of it."""
        pieces = [piece for piece in prompt if piece]
        branches = self._known.setdefault(execution, [])
        self._num_bytes -= sum(branch.num_bytes for branch in branches)
        known = _branch(branches, pieces)
        branches[:] = [*(other for other in branches if other is not known), known][-_MOST_BRANCHES:]
        self._known.move_to_end(execution)
        self._num_bytes += sum(branch.num_bytes for branch in branches)
        while self._num_bytes > self._most_bytes:
            _, oldest = self._known.popitem(last=False)
            self._num_bytes -= sum(branch.num_bytes for branch in oldest)
        with memoryview(known.text) as text:
            return b"".join((head, b"[", text[:-1], b"]", tail))

    def forget(self, execution: str) -> None:
        """It has ended."""
        self._num_bytes -= sum(branch.num_bytes for branch in self._known.pop(execution, ()))


def _branch(branches: list[_Known], pieces: list[bytes]) -> _Known:
    """The one that is these pieces: the nearest one, brought up to date, or a new one that begins like it."""
    num, known = max(((known.common(pieces), known) for known in branches), key=lambda pair: pair[0], default=(0, None))
    if known is None:
        known = _Known()
    elif num < len(known.pieces) - _NEW_PIECES or not num:
        known = known.beginning(num)
    else:
        known.cut(num)
    known.extend(pieces[num:])
    return known
