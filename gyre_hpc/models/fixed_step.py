"""One step of one fixed shape: a token's numbers depend on the tokens before it and on nothing else, to the last bit.

The result of a matrix product depends in its last bits on the number of rows, that of a sum on its length. Here both are constant:
every step has `num_rows` rows, filled up with zeros, and every token attends to a context of `length` columns, token i at
column i, what comes after it masked. A prefill is such steps over consecutive tokens of one sequence, a decode step one over the newest
token of each. So the same token after the same tokens has the same KV and logits whoever stands beside it, in whatever row,
prefilled or decoded, here or in another cell.

What remains to the library is that a row of a product does not depend on where it stands: `rows_are_alike` looks. Slow: for tests.
"""

from collections.abc import Sequence

import torch

from gyre_hpc.models.incremental import Prepared, _logits, _qkv, _rest
from gyre_hpc.models.kv_rows import KVSpan
from gyre_hpc.models.qwen3_config import Qwen3Config

_LINE = 16
"""Floats in 64 bytes: contexts are so many columns long, so that each row of memory begins at such a boundary."""


class FixedShape:
    """The shape of every step of one engine."""

    def __init__(self, config: Qwen3Config, num_rows: int) -> None:
        self.config, self.num_rows = config, num_rows
        self.length = -(-config.max_context // _LINE) * _LINE
        """Columns of a context."""
        self._mask = torch.cat((torch.zeros(self.length), torch.full((self.length,), -torch.inf)))

    def new_context(self) -> KVSpan:
        """KV of one sequence, [layers, 2, KV, hd, length]. Zeros: what is masked is still multiplied, and must be finite."""
        c = self.config
        return torch.zeros(c.num_layers, 2, c.num_kv_heads, c.head_dim, self.length)

    def whole(self, span: KVSpan) -> KVSpan:
        """The context that `span`, a view of its first columns, was cut from."""
        assert span.stride()[3:] == (self.length, 1) and not span.storage_offset(), "no view of a context of this shape"
        return span.as_strided((*span.shape[:4], self.length), span.stride())

    def mask(self, position: int) -> torch.Tensor:
        """[length]: 0 up to `position`, -inf behind it."""
        start = self.length - 1 - position
        return self._mask[start : start + self.length]


@torch.inference_mode()
def fixed_step(
    prepared: Prepared, shape: FixedShape, ids: Sequence[int], positions: Sequence[int], contexts: Sequence[KVSpan]
) -> torch.Tensor:
    """Token i stands at `positions[i]` of `contexts[i]`, where its KV is written: logits [n, V] float32, n <= num_rows.

    Contexts may be the same one, for tokens of one sequence: each sees those before it.
    """
    c, n, num_rows = shape.config, len(ids), shape.num_rows
    assert n == len(positions) == len(contexts) <= num_rows
    padding = [0] * (num_rows - n)
    tokens, places = torch.tensor([[*ids, *padding], [*positions, *padding]]).unbind(0)
    x = prepared.embed(tokens)
    cos, sin = prepared.cos.index_select(0, places), prepared.sin.index_select(0, places)
    attended = torch.zeros(num_rows, c.num_heads * c.head_dim)
    for number, layer in enumerate(prepared.layers):
        q, k, v = _qkv(prepared, layer, x, cos, sin)
        q = q.reshape(num_rows, c.num_kv_heads, c.num_queries_per_kv, c.head_dim)
        for row, (position, context) in enumerate(zip(positions, contexts, strict=True)):
            context[number, 0, :, :, position] = k[row]
            context[number, 1, :, :, position] = v[row]
        for row, (position, context) in enumerate(zip(positions, contexts, strict=True)):
            keys, values = context[number].unbind(0)
            scores = torch.bmm(q[row], keys).add_(shape.mask(position))
            attended[row] = torch.bmm(torch.softmax(scores, -1), values.transpose(1, 2)).view(-1)
        x = _rest(prepared, layer, x, attended)
    return _logits(prepared, x)[:n]


@torch.inference_mode()
def rows_are_alike(prepared: Prepared, num_rows: int) -> bool:
    """Whether this machine's matrix product gives equal rows equal results wherever they stand and whatever stands beside them."""
    dice = torch.Generator().manual_seed(0)
    matrices = [matrix for layer in prepared.layers for matrix in (layer.qkv, layer.out, layer.gate_up, layer.down)]
    for matrix in (*matrices, prepared.head):
        row = torch.randn(matrix.shape[0], generator=dice)
        equal = torch.mm(row.expand(num_rows, -1).contiguous(), matrix)
        if not torch.equal(equal, equal[:1].expand_as(equal)):
            return False
        others = torch.randn(num_rows, matrix.shape[0], generator=dice)
        for place in {0, num_rows // 2, num_rows - 1}:
            beside = others.clone()
            beside[place] = row
            if not torch.equal(torch.mm(beside, matrix)[place], equal[0]):
                return False
    return True
