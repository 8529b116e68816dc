"""Autograd's side of a decoder that several ranks hold together (Megatron-LM, arXiv 1909.08053).

    enter   identity forward, sum of the gradients backward: before a column-divided matrix
    leave   sum forward, identity backward: after a row-divided matrix
    embed   rows of the rank's part of the vocabulary, then `leave`
    logprobs of targets from logits whose vocabulary is divided, without ever bringing the logits together

Everything outside these has the same values and gradients on every rank, to the last bit. CPU autograd runs backward in
the calling thread in the order of the forward, so the ranks' collectives match.
"""

from typing import Any

import torch
import torch.nn.functional as F

from gyre_hpc.models.tensor_ranks import TensorRanks


class Joint:
    """What models/qwen3.py calls at the seams. vocabulary: [first, end) of the token ids whose rows are on this rank."""

    def __init__(self, ranks: TensorRanks, vocabulary: tuple[int, int]) -> None:
        self._ranks, self._vocabulary = ranks, vocabulary

    def enter(self, x: torch.Tensor) -> torch.Tensor:
        entered: torch.Tensor = _Enter.apply(x, self._ranks)
        return entered

    def leave(self, x: torch.Tensor) -> torch.Tensor:
        left: torch.Tensor = _Leave.apply(x, self._ranks)
        return left

    def embed(self, ids: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """ids [N], weight [own part of V, d] -> [N, d]."""
        local, is_mine = own_ids(ids, self._vocabulary)
        return self.leave(F.embedding(local, weight) * is_mine[:, None])

    def target_logprobs(self, scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """scores: logits [M, own part of V]; targets int64 [M], any ids. Log-softmax over the whole vocabulary, at the targets."""
        logprobs: torch.Tensor = _TargetLogprobs.apply(scores, targets, self._vocabulary, self._ranks)
        return logprobs

    def whole_scores(self, scores: torch.Tensor) -> torch.Tensor:
        """[M, own part of V] -> [M, V], without gradients. For what has to compare all of them (top-p, top-k)."""
        widest = torch.tensor(scores.shape[1])
        self._ranks.max_(widest)
        padded = F.pad(scores.detach(), (0, int(widest) - scores.shape[1]))
        widths = self._ranks.gather(torch.tensor(scores.shape[1])).tolist()
        return torch.cat([part[:, :width] for part, width in zip(self._ranks.gather(padded), widths, strict=True)], 1)

    def own_columns(self, whole: torch.Tensor) -> torch.Tensor:
        """[M, V] -> [M, own part of V]."""
        first, end = self._vocabulary
        return whole[:, first:end]


def own_ids(ids: torch.Tensor, vocabulary: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """(rows in the own part, 0 for ids of others; bool: it is one's own)."""
    first, end = vocabulary
    is_mine = (ids >= first) & (ids < end)
    return (ids - first).where(is_mine, 0), is_mine


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, ranks: TensorRanks) -> torch.Tensor:
        ctx.ranks = ranks
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return ctx.ranks.sum_(grads[0].contiguous().clone()), None


class _Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, ranks: TensorRanks) -> torch.Tensor:
        return ranks.sum_(x.contiguous().clone())

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return grads[0], None


class _TargetLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: torch.Tensor, targets: torch.Tensor, vocabulary: tuple[int, int], ranks: TensorRanks) -> torch.Tensor:
        top = ranks.max_(scores.amax(-1))
        exponentials = (scores - top[:, None]).exp()
        local, is_mine = own_ids(targets, vocabulary)
        chosen = (scores.gather(1, local[:, None])[:, 0] - top).where(is_mine, 0.0)
        # One collective for both sums.
        total, chosen = ranks.sum_(torch.stack((exponentials.sum(-1), chosen))).unbind(0)
        ctx.save_for_backward(exponentials.div_(total[:, None]), local, is_mine)
        return chosen - total.log()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        probabilities, local, is_mine = ctx.saved_tensors
        grad = grads[0]
        d_scores = probabilities * -grad[:, None]
        d_scores.scatter_add_(1, local[:, None], (grad * is_mine)[:, None])
        return d_scores, None, None, None
