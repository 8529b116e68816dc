"""The engine's forward where several ranks hold one model: each computes its heads and its part of the feed-forward.

Two sums of [N, d] per layer, one for the embedding, one gather of the logits. All ranks end with the same logits, to the
last bit, so that what they draw from them is the same too.
"""

import torch

from gyre_hpc.models.incremental import Prepared, _Layer, _prepare_layer
from gyre_hpc.models.parameters import Parameters, head_weight
from gyre_hpc.models.sharding import Shard, bounds
from gyre_hpc.models.tensor_parallel import own_ids
from gyre_hpc.models.tensor_ranks import TensorRanks


class ShardedPrepared(Prepared):
    """One rank's part, from the whole snapshot. Every rank's forwards must be given the same tokens in the same order."""

    def __init__(self, params: Parameters, shard: Shard, ranks: TensorRanks) -> None:
        assert (shard.rank, shard.size) == (ranks.rank, ranks.size)
        self._ranks, self._vocabulary = ranks, shard.vocabulary
        size, total = ranks.size, shard.config.vocab_size
        self._widths = [end - start for start, end in (bounds(total, rank, size) for rank in range(size))]
        super().__init__(shard.of(params), shard.own)

    def _arranged(self, params: Parameters) -> tuple[torch.Tensor, tuple[_Layer, ...], torch.Tensor]:
        """Embedding [own V, d] and matrices that write to the stream have one sign: half as much to sum. The output matrix
        [d, widest V] is filled up with zeros, so that every rank gathers the same shape."""
        c = self.config
        layers = tuple(_prepare_layer(params, c, layer, lambda out: out.t().contiguous()) for layer in range(c.num_layers))
        own = (head_weight(params, c) * params["model.norm.weight"]).t()
        head = torch.zeros(c.hidden_size, max(self._widths))
        head[:, : own.shape[1]] = own
        return params["model.embed_tokens.weight"].clone(), layers, head

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        local, is_mine = own_ids(tokens, self._vocabulary)
        x = self._ranks.sum_(self.embedding.index_select(0, local).mul_(is_mine[:, None]))
        return torch.cat((x, -x), 1)

    def add(self, x: torch.Tensor, y: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
        change = self._ranks.sum_(torch.mm(y, matrix))
        return torch.cat((change, -change), 1).add_(x)

    def score(self, h: torch.Tensor) -> torch.Tensor:
        parts = self._ranks.gather(torch.mm(h, self.head))
        return torch.cat([part[:, :width] for part, width in zip(parts, self._widths, strict=True)], 1)
