"""Draw one token per row by inverse CDF in id order in float64 (DESIGN §5).

The distribution is softmax(logits / temperature), cut to top_k, then to the smallest set of most likely tokens whose
mass reaches top_p, renormalised. Log-probs are of this very distribution. Temperature 0 is greedy: log-prob of the chosen
token under softmax(logits) of the uncut distribution, as SGLang reports it.
"""

from collections.abc import Sequence

import torch

from gyre_hpc.engines.counter_random import uniform
from gyre_hpc.engines.embedded import sequence
from gyre_hpc.engines.request import Request


def _cut(logprobs: torch.Tensor, top_k: int, top_p: float) -> torch.Tensor:
    """log-probs [V] float64 -> those of the cut distribution, -inf outside. Ties go to the smaller id."""
    ordered, order = torch.sort(logprobs, descending=True, stable=True)
    if 0 < top_k < len(ordered):
        ordered = ordered[:top_k].log_softmax(0)
    if top_p < 1:
        before = ordered.exp().cumsum(0) - ordered.exp()
        num_kept = max(1, int((before < top_p).sum()))
        ordered = ordered[:num_kept].log_softmax(0)
    return torch.full_like(logprobs, -torch.inf).scatter_(0, order[: len(ordered)], ordered)


@torch.inference_mode()
def score(logits: torch.Tensor, requests: Sequence[Request], tokens: Sequence[int]) -> list[float]:
    """logits [B, V] float32 -> log-prob of tokens[i] in row i under softmax(logits / temperature), uncut: a prescribed token
    may lie outside top_k or top_p. Temperature 0 counts as 1."""
    scores = logits.double()
    scores /= torch.tensor([request.temperature or 1.0 for request in requests], dtype=torch.float64)[:, None]
    chosen = scores.gather(1, torch.tensor(tokens)[:, None])[:, 0]
    return (chosen - scores.logsumexp(-1)).tolist()


@torch.inference_mode()
def sample(logits: torch.Tensor, requests: Sequence[Request], num_outputs: Sequence[int]) -> tuple[list[int], list[float]]:
    """logits [B, V] float32 -> token ids and log-probs, one per row.

    num_outputs: tokens that each request already has, so that row i draws number position_i + num_outputs_i of its key.
    """
    scores = logits.double()
    if any(request.temperature not in (0.0, 1.0) for request in requests):
        scores /= torch.tensor([request.temperature or 1.0 for request in requests], dtype=torch.float64)[:, None]
    logprobs = torch.log_softmax(scores, -1)
    for row, request in enumerate(requests):
        if request.temperature and (request.top_p < 1 or request.top_k):
            logprobs[row] = _cut(logprobs[row], request.top_k, request.top_p)
    mass = logprobs.exp().cumsum_(-1)
    draws = [uniform(r.key, r.position + done) for r, done in zip(requests, num_outputs, strict=True)]
    # Scaled by the last sum, which rounding keeps from being exactly 1. `right`: a token of no mass is never hit.
    targets = torch.tensor(draws, dtype=torch.float64)[:, None] * mass[:, -1:]
    chosen = torch.searchsorted(mass, targets, right=True)
    for row, request in enumerate(requests):
        if not request.temperature:
            chosen[row] = torch.argmax(logits[row])
    return chosen[:, 0].tolist(), logprobs.gather(1, chosen)[:, 0].tolist()


def next_tokens(logits: torch.Tensor, stepped: Sequence[sequence.Sequence]) -> tuple[list[int], list[float]]:
    """Next token and log-prob of each row [B, V]: drawn, or as prescribed. An engine has a script for all or for none."""
    requests = [seq.request for seq in stepped]
    prescribed = [seq.prescribed[seq.num_output] for seq in stepped if seq.prescribed is not None]
    if not prescribed:
        return sample(logits, requests, [seq.num_output for seq in stepped])
    return prescribed, score(logits, requests, prescribed)
