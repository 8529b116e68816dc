"""How the core computes: the weights as it uses them, the memory its rows live in, prefill and decode.

The core decides what is computed next; a Forward knows nothing of sequences, pages or versions. Another kind (sharded
weights, steps of one fixed shape) takes this one's place without the core noticing.
"""

from collections.abc import Callable

import torch

from gyre_hpc.models.incremental import Prepared, decode, prefill
from gyre_hpc.models.kv_rows import KVRows, KVSpan, empty_span
from gyre_hpc.models.parameters import Parameters
from gyre_hpc.models.qwen3_config import Qwen3Config


class Forward:
    """Steps as small as the work that there is."""

    def __init__(self, model: Qwen3Config, arrange: Callable[[Parameters], Prepared] | None = None) -> None:
        """model: the shape that this rank computes. arrange: makes its weights of a whole snapshot; None: they are the whole."""
        self.model, self._arrange = model, arrange

    def prepare(self, snapshot: Parameters) -> Prepared:
        """Weights from a whole snapshot by Hugging Face names; owns its memory."""
        return Prepared(snapshot, self.model) if self._arrange is None else self._arrange(snapshot)

    def new_rows(self, max_rows: int) -> KVRows:
        """Working memory of up to `max_rows` decoding sequences."""
        return KVRows(self.model, max_rows, self.model.max_context)

    def new_span(self, length: int) -> KVSpan:
        """Room for the KV of `length` tokens of one sequence."""
        return empty_span(self.model, length)

    def prefill(self, prepared: Prepared, ids: list[int], start: int, span: KVSpan) -> torch.Tensor:
        """Tokens [start, start + n) of a sequence whose KV before `start` is in `span`: write theirs there, and return the
        logits [V] float32 of the last one."""
        return prefill(prepared, ids, start, span)

    def decode(self, prepared: Prepared, ids: list[int], positions: list[int], rows: KVRows) -> torch.Tensor:
        """One token of each row, written in a new column of `rows`: logits [B, V] float32. ids and positions by row."""
        rows.next_column()
        return decode(prepared, ids, positions, rows)
