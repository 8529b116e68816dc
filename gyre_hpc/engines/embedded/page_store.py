"""The KV of full pages, in host memory. A page is written once and read when a prompt starts with its tokens."""

import torch

from gyre_hpc.models.kv_rows import KVSpan
from gyre_hpc.models.qwen3_config import Qwen3Config


class PageStore:
    """Room for `num_pages` pages of `page_size` tokens; the system gives memory as pages are first written."""

    def __init__(self, config: Qwen3Config, num_pages: int, page_size: int) -> None:
        shape = (num_pages, config.num_layers, config.num_kv_heads)
        self._keys = torch.empty(*shape, config.head_dim, page_size)
        self._values = torch.empty(*shape, page_size, config.head_dim)
        self._page_size = page_size

    def num_bytes(self) -> int:
        return 4 * (self._keys.numel() + self._values.numel())

    @torch.inference_mode()
    def write(self, page: int, span: KVSpan) -> None:
        """Copy one page's worth of tokens."""
        self._keys[page] = span.keys
        self._values[page] = span.values

    @torch.inference_mode()
    def read(self, pages: list[int], into: KVSpan) -> None:
        """Copy pages, in this order, to the first tokens of `into`."""
        if not pages:
            return
        index, length = torch.tensor(pages), len(pages) * self._page_size
        into.keys[..., :length] = self._keys[index].permute(1, 2, 3, 0, 4).flatten(3)
        into.values[:, :, :length] = self._values[index].permute(1, 2, 0, 3, 4).flatten(2, 3)
