"""`engine.deterministic`: every step has one fixed shape, so that a call's tokens depend on its context and its sampling key alone.

Invariants (each has a test): the log-probs of a call are the same to the last bit in any row, beside any other calls, with its prefix
computed or found in the cache, prefilled or decoded, retracted or not, begun here and continued elsewhere, its pages imported.
"""

from collections.abc import Callable, Iterator

import torch

from gyre_hpc.engines.embedded.forward import Forward
from gyre_hpc.models.fixed_step import FixedShape, fixed_step, rows_are_alike
from gyre_hpc.models.incremental import Prepared
from gyre_hpc.models.kv_rows import KVRows, KVSpan
from gyre_hpc.models.parameters import Parameters
from gyre_hpc.models.qwen3_config import Qwen3Config


class FixedRows(KVRows):
    """Contexts of the sequences that decode now, each in memory of its own; nothing moves when others come and go."""

    def __init__(self, shape: FixedShape, max_rows: int) -> None:
        self._shape, self._limit = shape, max_rows
        self._contexts: list[KVSpan] = []
        self._lengths: list[int] = []

    def __len__(self) -> int:
        return len(self._contexts)

    def __iter__(self) -> Iterator[KVSpan]:
        """Contexts by row."""
        return iter(self._contexts)

    def num_bytes(self) -> int:
        return sum(4 * context.numel() for context in self._contexts)

    def length(self, row: int) -> int:
        return self._lengths[row]

    def install(self, span: KVSpan) -> int:
        """Take over the context that `span` is the beginning of."""
        assert len(self) < self._limit
        self._contexts.append(self._shape.whole(span))
        self._lengths.append(span.shape[-1])
        return len(self) - 1

    def remove(self, row: int) -> None:
        """Drop a row. The last row takes its place."""
        self._contexts[row], self._lengths[row] = self._contexts[-1], self._lengths[-1]
        self._contexts.pop()
        self._lengths.pop()

    def next_column(self) -> None:
        """Every row is one token longer."""
        assert max(self._lengths) < self._shape.length
        self._lengths = [length + 1 for length in self._lengths]

    def span(self, row: int, start: int, end: int) -> KVSpan:
        return self._contexts[row][..., start:end]


class FixedForward(Forward):
    """Steps of `num_rows` tokens, whatever there is to do."""

    def __init__(self, model: Qwen3Config, num_rows: int, arrange: Callable[[Parameters], Prepared] | None = None) -> None:
        super().__init__(model, arrange)
        self._shape = FixedShape(model, num_rows)
        self._is_checked = False

    def prepare(self, snapshot: Parameters) -> Prepared:
        """Raises RuntimeError where this machine's matrix product does not keep what the mode promises."""
        prepared = super().prepare(snapshot)
        if not self._is_checked and not rows_are_alike(prepared, self._shape.num_rows):
            raise RuntimeError(
                f"engine.deterministic=True: on this machine a row of a product of {self._shape.num_rows} rows depends on its place; "
                "set engine.max_batch to another multiple of 16, or engine.deterministic=false"
            )
        self._is_checked = True
        return prepared

    def new_rows(self, max_rows: int) -> KVRows:
        assert max_rows <= self._shape.num_rows
        return FixedRows(self._shape, max_rows)

    def new_span(self, length: int) -> KVSpan:
        return self._shape.new_context()[..., :length]

    def prefill(self, prepared: Prepared, ids: list[int], start: int, span: KVSpan) -> torch.Tensor:
        """Consecutive tokens in steps of the one shape; the last step is filled up like any other."""
        context, size = self._shape.whole(span), self._shape.num_rows
        logits = torch.empty(0)
        for begin in range(0, len(ids), size):
            part = ids[begin : begin + size]
            places = range(start + begin, start + begin + len(part))
            logits = fixed_step(prepared, self._shape, part, places, [context] * len(part))
        return logits[-1]

    def decode(self, prepared: Prepared, ids: list[int], positions: list[int], rows: KVRows) -> torch.Tensor:
        assert isinstance(rows, FixedRows)
        rows.next_column()
        return fixed_step(prepared, self._shape, ids, positions, list(rows))
