"""Which KV page holds what, who needs it, and which may go. Bookkeeping only; the numbers are in embedded/page_store.py.

A page is full before it gets a key, and never changes afterwards. Its key is

    blake2b(parent key, version text or `mixed`, token ids)

so a page found by key has the right tokens after the right tokens, computed by the right weights. With keep_kv the chain
is `mixed`: pages of any version are found, and `oldest` of a page says which weights it reaches back to.

States of a page (each page is in exactly one):  free ─take─▶ held ─release─▶ free, or cached if it has a key;
cached ─find─▶ held;  cached ─take, oldest release first─▶ held by another.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.tensors import pack_ids

ROOT = b""


def block_key(parent: bytes, chain: bytes, ids: Sequence[int]) -> bytes:
    """Key of the full block `ids` after the block `parent` (ROOT for the first). chain: version text or b"mixed"."""
    digest = hashlib.blake2b(parent, digest_size=16, key=chain[:64])
    digest.update(pack_ids(ids))
    return digest.digest()


class PageTable:
    """`num_pages` pages, numbered from 0."""

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self._free = list(range(num_pages - 1, -1, -1))
        self._holders = [0] * num_pages
        self._page_of: dict[bytes, int] = {}
        self._key_of: dict[int, bytes] = {}
        self._oldest: dict[int, Version] = {}
        self._cached: OrderedDict[int, None] = OrderedDict()

    @property
    def num_available(self) -> int:
        """Pages that `take` can give: free and cached ones."""
        return len(self._free) + len(self._cached)

    @property
    def num_held(self) -> int:
        return self.num_pages - self.num_available

    def find(self, key: bytes) -> int | None:
        """Hold the page with this key and return it."""
        page = self._page_of.get(key)
        if page is not None:
            self._holders[page] += 1
            self._cached.pop(page, None)
        return page

    def oldest(self, page: int) -> Version:
        """Oldest version whose KV is in the page or before it in its chain."""
        return self._oldest[page]

    def take(self) -> int | None:
        """Hold a page for new content; None when every page is held."""
        if self._free:
            page = self._free.pop()
        elif self._cached:
            page, _ = self._cached.popitem(last=False)
            self._forget_key(page)
        else:
            return None
        self._holders[page] = 1
        return page

    def publish(self, page: int, key: bytes, oldest: Version) -> None:
        """The held page is full: it can be found by key from now on. The key must be new (see `find`)."""
        assert key not in self._page_of and self._holders[page] > 0
        self._page_of[key], self._key_of[page], self._oldest[page] = page, key, oldest

    def release(self, page: int) -> None:
        """Give one hold back."""
        assert self._holders[page] > 0
        self._holders[page] -= 1
        if self._holders[page] == 0:
            if page in self._key_of:
                self._cached[page] = None
            else:
                self._free.append(page)

    def forget_cached(self) -> None:
        """Free every page that nobody holds."""
        for page in list(self._cached):
            self._forget_key(page)
            self._free.append(page)
        self._cached.clear()

    def check(self) -> None:
        """Assert that charges and releases came in pairs (for tests and an idle engine)."""
        held = sum(1 for holders in self._holders if holders)
        assert held + len(self._free) + len(self._cached) == self.num_pages
        assert set(self._page_of.values()) == set(self._key_of)
        assert all(self._holders[page] == 0 for page in (*self._free, *self._cached))

    def _forget_key(self, page: int) -> None:
        del self._page_of[self._key_of.pop(page)], self._oldest[page]
