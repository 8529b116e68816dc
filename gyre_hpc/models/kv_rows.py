"""KV of the sequences that decode now, in the arrangement that one decode step reads without gathering.

All rows are right-aligned: the newest token of every row stands in the same column, so a step writes one column of each
layer and reads one slice of it. A row that joins is copied to end at the current column; RoPE is already in the keys,
so columns carry no meaning. When the columns run out, all rows move left by one copy.

    column      0        lo              column
    row 0       ........ aaaaaaaaaaaaaaaa|      `.` masked (-inf), finite garbage
    row 1       ............. bbbbbbbbbbb|

Pages (engines/embedded/page_store.py) hold what outlives a request; rows are working memory and may be dropped any time.
"""

from dataclasses import dataclass

import torch

from gyre_hpc.models.qwen3_config import Qwen3Config

KVSpan = torch.Tensor
"""KV of T consecutive tokens of one sequence: [layers, 2 (keys with RoPE applied, values), KV, hd, T] float32, possibly a
view. Tokens lie innermost: both products of attention then read contiguous memory."""


def empty_span(config: Qwen3Config, length: int) -> KVSpan:
    """A span to be filled."""
    return torch.empty(config.num_layers, 2, config.num_kv_heads, config.head_dim, length)


@dataclass(frozen=True, slots=True)
class StepViews:
    """What one decode step of B rows touches."""

    columns: tuple[torch.Tensor, ...]
    """Per layer [2, B, KV, hd]: where the new token's keys and values go."""
    contexts: tuple[torch.Tensor, ...]
    """Per layer [2, B * KV, hd, L]: keys and values to attend to."""
    mask: torch.Tensor
    """[B * KV, 1, L]: 0 or -inf."""


class KVRows:
    """Up to `max_rows` rows of up to `max_length` tokens; memory grows by doubling with what is used."""

    def __init__(self, config: Qwen3Config, max_rows: int, max_length: int) -> None:
        self._config, self._max_rows, self._max_length = config, max_rows, max_length
        self._num_rows = 0
        self._allocate(min(4, max_rows), 128)
        self._column = -1
        self._starts: list[int] = []

    def __len__(self) -> int:
        return self._num_rows

    def num_bytes(self) -> int:
        return 4 * (self._kv.numel() + self._mask.numel())

    def length(self, row: int) -> int:
        """Tokens in the row."""
        return self._column + 1 - self._starts[row]

    @torch.inference_mode()
    def install(self, span: KVSpan) -> int:
        """Copy a sequence's KV into a new row that ends at the current column; return the row."""
        length, row = span.shape[-1], self._num_rows
        assert row < self._max_rows and length <= self._max_length
        if row == self._kv.shape[2]:
            self._rearrange(min(2 * row, self._max_rows), self._kv.shape[-1], self._column)
        if length > self._column + 1:
            self._rearrange(self._kv.shape[2], self._capacity_for(length), length - 1)
        start, end = self._column + 1 - length, self._column + 1
        self._kv[:, :, row, :, :, start:end] = span
        self._starts.append(start)
        self._num_rows += 1
        self._mask_row(row)
        return row

    @torch.inference_mode()
    def remove(self, row: int) -> None:
        """Drop a row. The last row takes its place."""
        last = self._num_rows - 1
        if row != last:
            start, end = self._starts[last], self._column + 1
            self._kv[:, :, row, :, :, start:end] = self._kv[:, :, last, :, :, start:end]
            self._starts[row] = start
            self._mask_row(row)
        self._starts.pop()
        self._num_rows = last

    @torch.inference_mode()
    def next_column(self) -> None:
        """Make room for one more token in every row."""
        if self._column + 1 == self._kv.shape[-1]:
            longest = self._column + 1 - min(self._starts)
            self._rearrange(self._kv.shape[2], self._capacity_for(longest + 1), longest - 1)
        self._column += 1

    def span(self, row: int, start: int, end: int) -> KVSpan:
        """Tokens [start, end) of the row, as a view."""
        first = self._starts[row]
        return self._kv[:, :, row, :, :, first + start : first + end]

    def views(self, n: int) -> StepViews:
        """Views of the first n rows for one decode step at the current column."""
        assert n == self._num_rows
        low, end = min(self._starts), self._column + 1
        kv = self._kv[:, :, :n]
        return StepViews(
            kv[..., self._column].unbind(0),
            kv[..., low:end].flatten(2, 3).unbind(0),
            self._mask[:n, :, :, low:end].flatten(0, 1),
        )

    def _capacity_for(self, longest: int) -> int:
        """At least twice the longest row: then columns run out at most every `longest` steps."""
        return max(self._kv.shape[-1], 1 << (2 * longest - 1).bit_length())

    def _allocate(self, rows: int, capacity: int) -> None:
        c = self._config
        # Zeros, not empty: what is masked is still multiplied, and must be finite.
        self._kv = torch.zeros(c.num_layers, 2, rows, c.num_kv_heads, c.head_dim, capacity)
        self._mask = torch.zeros(rows, c.num_kv_heads, 1, capacity)

    def _rearrange(self, rows: int, capacity: int, column: int) -> None:
        """Move all rows into new memory such that they end at `column`."""
        kv, old = self._kv, self._column
        self._allocate(rows, capacity)
        n = self._num_rows
        if n:
            longest = old + 1 - min(self._starts)
            source, target = slice(old + 1 - longest, old + 1), slice(column + 1 - longest, column + 1)
            self._kv[:, :, :n, :, :, target] = kv[:, :, :n, :, :, source]
        self._starts = [start + column - old for start in self._starts]
        self._column = column
        for row in range(n):
            self._mask_row(row)

    def _mask_row(self, row: int) -> None:
        start = self._starts[row]
        self._mask[row, :, :, :start] = -torch.inf
        self._mask[row, :, :, start:] = 0
