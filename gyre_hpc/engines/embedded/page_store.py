"""The KV of full pages, in host memory. A page is written once and read when a prompt starts with its tokens.

A page is one contiguous range: what moves KV between cells reads and writes pages in place. It may do so in another thread,
as it touches pages alone that nobody else writes (engines/kv_pages.py).
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from gyre_hpc.engines.base import PageBytes
from gyre_hpc.engines.kv_pages import KvPages
from gyre_hpc.models.kv_rows import KVSpan
from gyre_hpc.models.qwen3_config import Qwen3Config


class PageStore:
    """Room for `num_pages` pages of `page_size` tokens; the system gives memory as pages are first written."""

    def __init__(self, config: Qwen3Config, num_pages: int, page_size: int) -> None:
        self._kv = torch.empty(num_pages, config.num_layers, 2, config.num_kv_heads, config.head_dim, page_size)
        self._page_size = page_size

    def num_bytes(self) -> int:
        return 4 * self._kv.numel()

    def bytes_by_page(self) -> npt.NDArray[np.uint8]:
        """View [pages, bytes of a page]."""
        return self._kv.view(len(self._kv), -1).view(torch.uint8).numpy()

    @torch.inference_mode()
    def write(self, page: int, span: KVSpan) -> None:
        """Copy one page's worth of tokens."""
        self._kv[page] = span

    @torch.inference_mode()
    def read(self, pages: list[int], into: KVSpan) -> None:
        """Copy pages, in this order, to the first tokens of `into`."""
        length = len(pages) * self._page_size
        into[..., :length].unflatten(4, (len(pages), self._page_size)).copy_(self._kv[torch.tensor(pages)].movedim(0, 4))


class StoredPages(PageBytes):
    """Pages that are leased or reserved, as bytes."""

    def __init__(self, store: PageStore, pages: KvPages) -> None:
        self._by_page, self._pages = store.bytes_by_page(), pages
        self.memory, self.block_bytes = self._by_page.reshape(-1), self._by_page.shape[1]

    def leased(self, lease: int, indices: Sequence[int]) -> list[npt.NDArray[np.uint8]]:
        pages = self._pages.leased(lease)
        return [self._by_page[pages[index]] for index in indices]

    def reserved(self, reservation: int, start: int, end: int) -> list[npt.NDArray[np.uint8]]:
        return [self._by_page[page] for page in self._pages.reserved(reservation, start, end)]
