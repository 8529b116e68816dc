"""Warm start: imitate scripted executions by cross-entropy until the policy acts at all. Runs on the core alone.

Its optimizer is its own (AdamW, beta2 0.98 and a little weight decay: short runs from random weights) and is dropped at
the end. Each step's loss is the weighted mean over a mini-batch, so the step size does not depend on lengths.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from gyre_hpc.config.schema import Config
from gyre_hpc.models.qwen3_config import Qwen3Config
from gyre_hpc.protocol.micro_batch import Sequence
from gyre_hpc.train.adamw import AdamW, clip_scale
from gyre_hpc.train.cell_ranks import CellRanks
from gyre_hpc.train.flat import FlatParameters
from gyre_hpc.train.gradient import gradient
from gyre_hpc.train.targets import length, pack

_BETAS = (0.9, 0.98)
_WEIGHT_DECAY = 0.01
_WARMUP_STEPS = 50
_WARMUP_SHARE = 0.1
_LAST_LR_SHARE = 0.1


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Plan:
    """How long and how fast."""

    config: Config
    epochs: int

    def lr(self, step: int, num_steps: int) -> float:
        """Linear warmup over min(50, 10 %) steps, then a cosine down to 10 % of the peak."""
        peak = self.config.warm_start.lr
        warmup = max(1, min(_WARMUP_STEPS, int(_WARMUP_SHARE * num_steps)))
        if step < warmup:
            return peak * (step + 1) / warmup
        done = (step - warmup) / max(1, num_steps - warmup)
        return peak * (_LAST_LR_SHARE + (1 - _LAST_LR_SHARE) * 0.5 * (1 + math.cos(math.pi * done)))


def mini_batches(lengths: list[int], batch_tokens: int, generator: np.random.Generator) -> Iterator[list[int]]:
    """One epoch: every index once, shuffled, cut so that a mini-batch holds at most `batch_tokens` tokens (but one
    sequence at least)."""
    batch: list[int] = []
    used = 0
    for index in generator.permutation(len(lengths)).tolist():
        if batch and used + lengths[index] > batch_tokens:
            yield batch
            batch, used = [], 0
        batch.append(index)
        used += lengths[index]
    if batch:
        yield batch


def fit(
    parameters: FlatParameters,
    model: Qwen3Config,
    sequences: tuple[Sequence, ...],
    plan: Plan,
    ranks: CellRanks,
    progress: Callable[[float], None],
) -> dict[str, float]:
    """Train `parameters` in place. Returns loss (weighted mean over the last epoch), tokens (computed in all epochs), steps.

    Raises ValueError when there is nothing to imitate.
    """
    if not sequences or plan.epochs <= 0:
        raise ValueError(f"warm start over {len(sequences)} sequences and {plan.epochs} epochs has nothing to do")
    lengths = [length(sequence) for sequence in sequences]
    generator = np.random.default_rng(plan.config.seed)
    batches = [list(mini_batches(lengths, plan.config.warm_start.batch_tokens, generator)) for _ in range(plan.epochs)]
    num_steps = sum(len(epoch) for epoch in batches)
    trainer = plan.config.trainer
    optimizer = AdamW(parameters, betas=_BETAS, eps=trainer.eps, weight_decay=_WEIGHT_DECAY, norm=ranks.norm)
    step, loss, weight = 0, 0.0, 0.0
    for epoch in batches:
        loss = weight = 0.0
        for indices in epoch:
            flat, batch_loss, batch_weight = _total(parameters, model, [sequences[i] for i in indices], plan, ranks)
            if batch_weight > 0:
                mean = flat / batch_weight
                scale = clip_scale(ranks.norm(mean), trainer.max_grad_norm)
                optimizer.step(mean * scale, plan.lr(step, num_steps))
            loss, weight, step = loss + batch_loss, weight + batch_weight, step + 1
            progress(step / num_steps)
    return {"loss": loss / weight if weight else 0.0, "tokens": float(plan.epochs * sum(lengths)), "steps": float(step)}


def _total(
    parameters: FlatParameters, model: Qwen3Config, sequences: list[Sequence], plan: Plan, ranks: CellRanks
) -> tuple[torch.Tensor, float, float]:
    """Own gradient, loss and weight of a mini-batch, of all shares."""
    mine = ranks.share([length(sequence) for sequence in sequences])
    packed = pack(tuple(sequences[index] for index in mine))
    gradients, measured = gradient(parameters.views, model, packed, "cross_entropy", plan.config.algo, ranks.joint)
    parts = [part.reshape(-1) for part in gradients] or [torch.zeros_like(parameters.flat)]
    sums = torch.tensor([measured.loss_sum, measured.weight_sum], dtype=parameters.flat.dtype)
    total = ranks.added_up(torch.cat([*parts, sums]))
    return total[:-2], float(total[-2]), float(total[-1])
