"""The KV of full pages, in host memory. A page is written once and read when a prompt starts with its tokens."""

import torch

from gyre_hpc.models.kv_rows import KVSpan
from gyre_hpc.models.qwen3_config import Qwen3Config


class PageStore:
    """Room for `num_pages` pages of `page_size` tokens; the system gives memory as pages are first written."""

    def __init__(self, config: Qwen3Config, num_pages: int, page_size: int) -> None:
        self._kv = torch.empty(num_pages, config.num_layers, 2, config.num_kv_heads, config.head_dim, page_size)
        self._page_size = page_size

    def num_bytes(self) -> int:
        return 4 * self._kv.numel()

    @torch.inference_mode()
    def write(self, page: int, span: KVSpan) -> None:
        """Copy one page's worth of tokens."""
        self._kv[page] = span

    @torch.inference_mode()
    def read(self, pages: list[int], into: KVSpan) -> None:
        """Copy pages, in this order, to the first tokens of `into`."""
        length = len(pages) * self._page_size
        into[..., :length].unflatten(4, (len(pages), self._page_size)).copy_(self._kv[torch.tensor(pages)].movedim(0, 4))
