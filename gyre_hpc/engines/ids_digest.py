"""Running hash over the ids an engine saw and produced: the gateway compares it with the hash of what it recorded.

blake2b with 16 bytes over the packed little-endian int32 prompt ids, then the output ids. The prompt of a continuation ends
with the output so far, so a call has the same digest however many attempts it took.
"""

import hashlib
from collections.abc import Sequence

from gyre_hpc.protocol.tensors import pack_ids


class IdsDigest:
    """About 25 ns per id."""

    def __init__(self, ids: Sequence[int] = ()) -> None:
        self._hasher = hashlib.blake2b(digest_size=16)
        self.num_ids = 0
        self.update(ids)

    def update(self, ids: Sequence[int]) -> None:
        """The next ids."""
        if ids:
            self._hasher.update(pack_ids(ids))
            self.num_ids += len(ids)

    def hexdigest(self) -> str:
        """Over all ids so far."""
        return self._hasher.hexdigest()
