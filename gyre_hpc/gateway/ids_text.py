"""Token ids as JSON text. A prompt consists of pieces that were sent before, all but the newest: their text is remembered.

Writing 200,000 ids costs more than everything else a gateway does with a long conversation. A memory of what can be made again.
"""

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import orjson

MOST_BYTES = 128 << 20
"""Of text and packed ids kept."""
_OVERHEAD = 250
"""Bytes of an entry beyond these."""


def as_text(packed: bytes) -> bytes:
    """Packed ids -> `1,2,3`."""
    return orjson.dumps(np.frombuffer(packed, dtype="<i4"), option=orjson.OPT_SERIALIZE_NUMPY)[1:-1]


class IdsText:
    """JSON lists of ids."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes, self._num_bytes = most_bytes, 0
        self._known: OrderedDict[bytes, bytes] = OrderedDict()
        """Longest unused first."""

    def list_of(self, pieces: Sequence[bytes]) -> bytes:
        """Pieces of packed ids -> one JSON list."""
        return b"[" + b",".join([self._text(piece) for piece in pieces if piece]) + b"]"

    def _text(self, piece: bytes) -> bytes:
        text = self._known.get(piece)
        if text is not None:
            self._known.move_to_end(piece)
            return text
        text = self._known[piece] = as_text(piece)
        self._num_bytes += len(piece) + len(text) + _OVERHEAD
        while self._num_bytes > self._most_bytes:
            oldest, its_text = self._known.popitem(last=False)
            self._num_bytes -= len(oldest) + len(its_text) + _OVERHEAD
        return text
