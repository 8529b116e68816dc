"""Loss terms l_t per target token (DESIGN §6). No weights, no means: the micro-batch carries the weights, the sum is plain.

All log-probs are natural logarithms under the distribution that was sampled from (temperature, top-p, top-k), so that an
on-policy token has ratio 1.
"""

from dataclasses import dataclass

import torch

from gyre_hpc.config.schema import AlgoConfig

KNOWN = ("policy", "cross_entropy")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Terms:
    """What one loss says of M targets."""

    values: torch.Tensor
    """[M], differentiable with respect to the log-probs."""
    is_clipped: torch.Tensor
    """bool [M]: the clip took the gradient away."""


def policy_terms(logprobs: torch.Tensor, behavior: torch.Tensor, advantages: torch.Tensor, algo: AlgoConfig) -> Terms:
    """Clipped policy gradient with the behavior log-probs as the old policy. All arguments [M]; logprobs has a gradient.

        r = exp(logprob - behavior),  c = clip(r, 1 - clip_low, 1 + clip_high)
        l = -c A          where c A < r A: the clip holds, no gradient
        l = -min(r, C) A  elsewhere, with the gradient -min(r, C) A d logprob; C = truncated_is, infinite where that is 0

    Sources: PPO (Schulman et al. 2017, arXiv 1707.06347, eq. 7); separate lower and upper range: DAPO (arXiv 2503.14476);
    truncated importance weights: Ionides 2008 (J. Comp. Graph. Stat. 17, 295). Without truncation a stale token with A < 0
    has an unbounded weight.
    """
    ratio = (logprobs - behavior).exp()
    bounded = ratio.detach().clamp(1.0 - algo.clip_low, 1.0 + algo.clip_high)
    is_clipped = bounded * advantages < ratio.detach() * advantages
    weight = ratio
    if algo.truncated_is > 0:
        weight = ratio * (algo.truncated_is / ratio.detach()).clamp(max=1.0)
    return Terms(values=-torch.where(is_clipped, bounded, weight) * advantages, is_clipped=is_clipped)


def cross_entropy_terms(logprobs: torch.Tensor) -> Terms:
    """l = -logprob: imitate the target."""
    return Terms(values=-logprobs, is_clipped=torch.zeros_like(logprobs, dtype=torch.bool))


def terms(loss: str, logprobs: torch.Tensor, behavior: torch.Tensor, advantages: torch.Tensor, algo: AlgoConfig) -> Terms:
    """The terms of `MicroBatch.loss`. Raises ValueError on an unknown one."""
    if loss == "policy":
        return policy_terms(logprobs, behavior, advantages, algo)
    if loss == "cross_entropy":
        return cross_entropy_terms(logprobs)
    raise ValueError(f"unknown loss {loss!r}; known are {', '.join(KNOWN)}")
