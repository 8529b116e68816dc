"""The gradient of one micro-batch's share, and what was measured on the way. Functional: nothing is kept.

The result is sum_t weight_t * d l_t: no division, so that sums of micro-batches, ranks and cells simply add up.
"""

from dataclasses import dataclass, replace

import torch

from gyre_hpc.config.schema import AlgoConfig
from gyre_hpc.models.qwen3 import hidden_states, logits
from gyre_hpc.models.qwen3_config import Qwen3Config
from gyre_hpc.models.tensor_parallel import Joint
from gyre_hpc.train.losses import terms
from gyre_hpc.train.sampled_distribution import target_logprobs
from gyre_hpc.train.targets import Packed


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """Sums over the targets of a share."""

    num_targets: int = 0
    num_on_policy: int = 0
    loss_sum: float = 0.0
    weight_sum: float = 0.0
    clipped: int = 0
    max_logprob_gap: float = 0.0


def gradient(
    params: dict[str, torch.Tensor], config: Qwen3Config, packed: Packed, loss: str, algo: AlgoConfig, joint: Joint | None = None
) -> tuple[tuple[torch.Tensor, ...], Measured]:
    """Gradients in the order of `params`, empty when nothing is trained. Raises ValueError on an unknown loss.

    With `joint`, params are the rank's part and so are the gradients; what is measured is the same on every rank.
    Imitated tokens were not sampled here: cross_entropy counts the whole distribution at the sampling temperature.
    """
    if loss == "cross_entropy":
        algo = replace(algo, top_p=1.0, top_k=0)
    if not len(packed.rows):
        return (), Measured()
    ids, rows = torch.from_numpy(packed.ids), torch.from_numpy(packed.rows)
    hidden = hidden_states(params, config, ids, packed.lengths, joint=joint)
    scores = logits(params, config, hidden.index_select(0, rows - 1), joint)
    logprobs = target_logprobs(scores, ids.index_select(0, rows), algo, joint)
    behavior = torch.from_numpy(packed.behavior).to(logprobs.dtype)
    weights = torch.from_numpy(packed.weights).to(logprobs.dtype)
    found = terms(loss, logprobs, behavior, torch.from_numpy(packed.advantages).to(logprobs.dtype), algo)
    total = (weights * found.values).sum()
    gradients = torch.autograd.grad(total, list(params.values()))
    gaps = (logprobs.detach() - behavior).abs()[torch.from_numpy(packed.is_on_policy)]
    return gradients, Measured(
        num_targets=len(packed.rows),
        num_on_policy=gaps.numel(),
        loss_sum=float(total.detach()),
        weight_sum=float(weights.sum()),
        clipped=int(found.is_clipped.sum()),
        max_logprob_gap=float(gaps.max()) if gaps.numel() else 0.0,
    )
