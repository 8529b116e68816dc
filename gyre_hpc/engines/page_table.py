"""Which KV page holds what, who needs it, and which may go. Bookkeeping only; the numbers are in embedded/page_store.py.

A page is full before it gets a key, and never changes afterwards. Its key is

    blake2b(parent key, version text or `mixed`, token ids)

so a page found by key has the right tokens after the right tokens, computed by the right weights. With keep_kv the chain
is `mixed`: pages of any version are found, and `oldest` of a page says which weights it reaches back to.

States of a page (each page is in exactly one):  free ─take─▶ held ─release─▶ free, or cached if it has a key;
cached ─find─▶ held;  cached ─take, oldest release first─▶ held by another.

Whoever holds a page holds its chain, and releases the end of the chain first. So a page never goes before those that follow
it: what is found of a chain has no gaps.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from gyre_hpc.engines.conversations import ConversationBook
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.tensors import pack_ids

ROOT = b""
KEY_BYTES = 16


def block_key(parent: bytes, chain: bytes, ids: Sequence[int]) -> bytes:
    """Key of the full block `ids` after the block `parent` (ROOT for the first). chain: version text or b"mixed"."""
    digest = hashlib.blake2b(parent, digest_size=KEY_BYTES, key=chain[:64])
    digest.update(pack_ids(ids))
    return digest.digest()


@dataclass(frozen=True, slots=True)
class Keyed:
    """What is known of a full page."""

    key: bytes
    parent: bytes
    """Key of the page before it; ROOT for the first."""
    oldest: Version
    """Oldest version whose KV is in it or before it in its chain."""
    depth: int
    """Pages of its chain up to it."""


class PageTable:
    """`num_pages` pages, numbered from 0."""

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self.conversations = ConversationBook(max(num_pages, 1))
        self._free = list(range(num_pages - 1, -1, -1))
        self._holders = [0] * num_pages
        self._page_of: dict[bytes, int] = {}
        self._keyed: dict[int, Keyed] = {}
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

    def keyed(self, page: int) -> Keyed:
        """What a full page holds."""
        return self._keyed[page]

    def is_keyed(self, page: int) -> bool:
        return page in self._keyed

    def oldest(self, page: int) -> Version:
        """Oldest version whose KV is in the page or before it in its chain."""
        return self._keyed[page].oldest

    def chain(self, key: bytes) -> list[Keyed]:
        """The pages that lead to `key`, the first one first; it must be here. Nothing is held."""
        pages = []
        while key != ROOT:
            pages.append(self._keyed[self._page_of[key]])
            key = pages[-1].parent
        return pages[::-1]

    def depth(self, key: bytes) -> int:
        """Pages of the chain that ends with `key`, 0 for ROOT and for a key that is not here."""
        page = self._page_of.get(key)
        return 0 if page is None else self._keyed[page].depth

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

    def publish(self, page: int, key: bytes, oldest: Version, parent: bytes = ROOT) -> None:
        """The held page is full: it can be found by key from now on. The key must be new (see `find`), its parent here."""
        assert key not in self._page_of and page not in self._keyed and self._holders[page] > 0
        assert parent == ROOT or parent in self._page_of, "a chain has no gaps"
        self._page_of[key] = page
        self._keyed[page] = Keyed(key, parent, oldest, self.depth(parent) + 1)

    def release(self, page: int) -> None:
        """Give one hold back."""
        assert self._holders[page] > 0
        self._holders[page] -= 1
        if self._holders[page] == 0:
            if page in self._keyed:
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
        """Assert that charges and releases came in pairs, and chains have no gaps (for tests and an idle engine)."""
        held = sum(1 for holders in self._holders if holders)
        assert held + len(self._free) + len(self._cached) == self.num_pages
        assert self._page_of == {one.key: page for page, one in self._keyed.items()}
        assert all(self._holders[page] == 0 for page in (*self._free, *self._cached))
        assert all(one.depth == self.depth(one.parent) + 1 for one in self._keyed.values())
        assert all(key in self._page_of for _, key in self.conversations.tips())
        self.conversations.check()

    def _forget_key(self, page: int) -> None:
        gone = self._keyed.pop(page)
        del self._page_of[gone.key]
        self.conversations.cut(gone.key, gone.parent)
