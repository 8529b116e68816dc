"""Log-probs of tokens under the distribution they were sampled from: temperature, then top-k and top-p.

Compared with the engine's log-probs they must be the same function of the logits (fault A10: raw against scaled), so
that an on-policy token has ratio 1.
"""

import torch
import torch.nn.functional as F

from gyre_hpc.config.schema import AlgoConfig
from gyre_hpc.models.tensor_parallel import Joint


def target_logprobs(scores: torch.Tensor, targets: torch.Tensor, algo: AlgoConfig, joint: Joint | None = None) -> torch.Tensor:
    """Log-probs [M] of `targets` [M] under `scores` (logits [M, V]) and algo's temperature, top_p, top_k.

    With top-k or top-p, tokens outside the kept set drop out of the normalisation; the target itself always stays in, so
    that a policy that has moved gives it a small probability and not none. With `joint` the scores are the rank's part.
    """
    scaled = scores if algo.temperature == 1.0 else scores / algo.temperature
    if algo.top_k > 0 or algo.top_p < 1.0:
        kept = kept_tokens(scaled.detach() if joint is None else joint.whole_scores(scaled), algo.top_p, algo.top_k)
        kept.scatter_(1, targets[:, None], True)
        scaled = scaled.masked_fill(~(kept if joint is None else joint.own_columns(kept)), float("-inf"))
    if joint is not None:
        return joint.target_logprobs(scaled, targets)
    return -F.cross_entropy(scaled, targets, reduction="none")


def kept_tokens(scaled: torch.Tensor, top_p: float, top_k: int) -> torch.Tensor:
    """bool [M, V]: the top_k most probable tokens (0: all), of them the fewest whose probability reaches top_p.

    Equal probabilities are taken in id order. top_p is a share of what top_k left.
    """
    order = torch.argsort(scaled, dim=-1, descending=True, stable=True)
    ordered = scaled.gather(-1, order)
    if top_k > 0:
        ordered[:, top_k:] = float("-inf")
    probabilities = ordered.softmax(-1, dtype=torch.float64)
    before = probabilities.cumsum(-1) - probabilities
    inside = (before < top_p) & (probabilities > 0)
    return torch.zeros_like(inside).scatter_(-1, order, inside)
