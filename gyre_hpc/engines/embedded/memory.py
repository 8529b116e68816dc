"""KV memory of the core: pages and rows in step with the sequences that hold them.

Invariants: a sequence with KV of n tokens holds ceil(n / page_size) pages; a page is sealed (written, keyed) as soon as
it is full; what is sealed outlives the sequence until its page is needed. The page limit counts live tokens, so it is
the limit on all KV, although the newest tokens of a sequence stand in its row alone. Calls that have a name are known as
conversations by the pages they computed or found.
"""

from gyre_hpc.engines.embedded.forward import Forward
from gyre_hpc.engines.embedded.page_store import PageStore, StoredPages
from gyre_hpc.engines.embedded.sequence import Sequence
from gyre_hpc.engines.kv_pages import KvPages
from gyre_hpc.engines.page_table import ROOT, PageTable, block_key
from gyre_hpc.models.kv_rows import KVSpan
from gyre_hpc.protocol.identity import Version


class KVMemory:
    """Allocated while the engine is awake."""

    def __init__(self, forward: Forward, *, kv_tokens: int, page_size: int, max_batch: int, keep_kv: bool) -> None:
        num_pages = kv_tokens // page_size
        self._forward, self.page_size, self._keep_kv = forward, page_size, keep_kv
        self.table = PageTable(num_pages)
        self.rows = forward.new_rows(max_batch)
        longest = -(-forward.model.max_context // page_size)
        self.pages = KvPages(self.table, page_size=page_size, num_kept=longest)
        self._store = PageStore(forward.model, num_pages, page_size)
        self.page_bytes = StoredPages(self._store, self.pages)

    def num_bytes(self) -> int:
        return self._store.num_bytes() + self.rows.num_bytes()

    def begin_prefill(self, seq: Sequence, version: Version, num_spare: int) -> bool:
        """Hold pages for all of `seq.ids`, cached ones first, and start its prefill KV; False, and nothing done, when
        fewer than `num_spare` pages would be left."""
        pages, keys, oldest = self._find_prefix(seq.ids, version)
        num_new = -(-len(seq.ids) // self.page_size) - len(pages)
        if self.table.num_available < num_new + num_spare:
            self._give_back(pages)
            return False
        self.table.conversations.begin(seq.request.call)
        self.table.conversations.reach(seq.request.call, keys)
        seq.num_sealed, seq.chain_key, seq.oldest_kv = len(pages), keys[-1] if keys else ROOT, oldest
        seq.num_kv = len(pages) * self.page_size
        seq.prefill = self._forward.new_span(len(seq.ids))
        if pages:
            self._store.read(pages, seq.prefill)
        for _ in range(num_new):
            new = self.table.take()
            assert new is not None
            pages.append(new)
        seq.pages = pages
        return True

    def _find_prefix(self, ids: list[int], version: Version) -> tuple[list[int], list[bytes], Version]:
        """Hold the cached pages of the longest prefix that leaves at least one token to compute: (pages, keys, oldest)."""
        pages: list[int] = []
        keys: list[bytes] = []
        key, oldest = ROOT, version
        for end in range(self.page_size, len(ids), self.page_size):
            key = block_key(key, self._chain(version), ids[end - self.page_size : end])
            page = self.table.find(key)
            if page is None:
                break
            pages.append(page)
            keys.append(key)
            oldest = min(oldest, self.table.oldest(page))
        return pages, keys, oldest

    def grow(self, seq: Sequence) -> bool:
        """Hold a page for the next token's KV if it begins one; False when no page is left."""
        if seq.num_kv < len(seq.pages) * self.page_size:
            return True
        page = self.table.take()
        if page is not None:
            seq.pages.append(page)
        return page is not None

    def seal(self, seq: Sequence, version: Version) -> None:
        """Write and key the pages that became full."""
        size = self.page_size
        while (seq.num_sealed + 1) * size <= seq.num_kv:
            start = seq.num_sealed * size
            parent = seq.chain_key
            seq.chain_key = block_key(parent, self._chain(version), seq.ids[start : start + size])
            twin = self.table.find(seq.chain_key)
            page = seq.pages[seq.num_sealed]
            if twin is not None:
                # Computed by another sequence meanwhile: share its page.
                seq.pages[seq.num_sealed] = twin
                self.table.release(page)
            else:
                self._store.write(page, self._span(seq, start, start + size))
                self.table.publish(page, seq.chain_key, seq.oldest_kv, parent)
            self.table.conversations.reach(seq.request.call, [seq.chain_key])
            seq.num_sealed += 1

    def install(self, seq: Sequence) -> None:
        """The prefill is complete: move its KV to a row."""
        assert seq.prefill is not None and seq.num_kv == seq.prefill.shape[-1]
        seq.row = self.rows.install(seq.prefill)
        seq.prefill = None

    def release(self, seq: Sequence) -> None:
        """Give back pages, prefill KV and row; the last row moves into its place."""
        if seq.pages:
            self.table.conversations.end(seq.request.call)
        self._give_back(seq.pages)
        if seq.row >= 0:
            self.rows.remove(seq.row)
        seq.pages, seq.num_sealed, seq.chain_key = [], 0, ROOT
        seq.num_kv, seq.prefill, seq.row = 0, None, -1

    def forget_version(self) -> None:
        """Other weights are served from now on, and no KV of the old ones is used. No sequence may hold any."""
        self.table.forget_cached()
        self.table.conversations.forget()

    def _give_back(self, pages: list[int]) -> None:
        # Last page first: of a chain, the end is given up before what it stands on.
        for page in reversed(pages):
            self.table.release(page)

    def _chain(self, version: Version) -> bytes:
        return b"mixed" if self._keep_kv else str(version).encode()

    def _span(self, seq: Sequence, start: int, end: int) -> KVSpan:
        if seq.prefill is None:
            return self.rows.span(seq.row, start, end)
        return seq.prefill[..., start:end]
