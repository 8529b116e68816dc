"""Prefix cache of an engine that computes nothing: which tokens *would* be cached. Same pages and keys as the embedded one.

A call holds pages for its whole possible length from the start, so it never has to give way later. Calls that have a name
are known as conversations by the pages published for them.
"""

from gyre_hpc.engines.kv_pages import KvPages
from gyre_hpc.engines.page_table import ROOT, PageTable, block_key
from gyre_hpc.protocol.identity import Version


class PrefixLedger:
    """`kv_tokens` tokens in pages of `page_size`. longest: tokens that one call may have."""

    def __init__(self, kv_tokens: int, page_size: int, keep_kv: bool, longest: int) -> None:
        self._table = PageTable(kv_tokens // page_size)
        self.pages = KvPages(self._table, page_size=page_size, num_kept=-(-longest // page_size))
        self._page_size, self._keep_kv = page_size, keep_kv

    @property
    def num_used_tokens(self) -> int:
        return self._table.num_held * self._page_size

    def hold(self, ids: list[int], longest: int, version: Version, call: str = "") -> tuple[list[int], int] | None:
        """Hold pages for a call that begins with `ids` and may grow to `longest` tokens: (pages, cached tokens).
        None, and nothing held, when there is no room."""
        pages: list[int] = []
        # The last token is never taken from the cache: its logits are needed.
        keys = self._keys(ids[:-1], version)
        for key in keys:
            page = self._table.find(key)
            if page is None:
                break
            pages.append(page)
        num_cached, num_new = len(pages), -(-longest // self._page_size) - len(pages)
        if self._table.num_available < num_new:
            self._give_back(pages)
            return None
        self._table.conversations.begin(call)
        self._table.conversations.reach(call, keys[:num_cached])
        for _ in range(num_new):
            page = self._table.take()
            assert page is not None
            pages.append(page)
        return pages, num_cached * self._page_size

    def publish(self, pages: list[int], ids: list[int], version: Version, call: str = "") -> None:
        """The KV of `ids` is computed: their full pages can be found from now on. `pages` is changed where another call
        computed the same."""
        parent, keys = ROOT, self._keys(ids, version)
        for index, key in enumerate(keys):
            twin = self._table.find(key)
            if twin is None:
                self._table.publish(pages[index], key, version, parent)
            else:
                self._table.release(pages[index])
                pages[index] = twin
            parent = key
        self._table.conversations.reach(call, keys)

    def release(self, pages: list[int], call: str = "") -> None:
        """Give back what `hold` gave to the call, the end of the chain first."""
        if pages:
            self._table.conversations.end(call)
        self._give_back(pages)

    def _give_back(self, pages: list[int]) -> None:
        for page in reversed(pages):
            self._table.release(page)

    def oldest(self, page: int) -> Version:
        """Oldest version whose KV is in a published page or before it in its chain."""
        return self._table.oldest(page)

    def forget(self) -> None:
        """Forget every prefix that no call holds, and what is known of conversations."""
        self._table.forget_cached()
        self._table.conversations.forget()

    def _keys(self, ids: list[int], version: Version) -> list[bytes]:
        chain = b"mixed" if self._keep_kv else str(version).encode()
        keys, key = [], ROOT
        for end in range(self._page_size, len(ids) + 1, self._page_size):
            key = block_key(key, chain, ids[end - self._page_size : end])
            keys.append(key)
        return keys
