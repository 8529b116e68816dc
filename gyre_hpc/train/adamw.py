"""AdamW on one flat buffer (Loshchilov & Hutter, arXiv 1711.05101), as torch.optim.AdamW computes it.

Own code because parameters, gradient and moments are flat here: one step is six vector operations, and a checkpoint is
two tensors. Weight decay acts on matrices alone, not on norm weights.
"""

from collections.abc import Callable

import torch

from gyre_hpc.train.flat import FlatParameters


class AdamW:
    """Moments of `parameters`; `num_steps` counts steps taken. norm: 2-norm of numbers like the parameters, where these are a part."""

    def __init__(
        self,
        parameters: FlatParameters,
        *,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        norm: Callable[[torch.Tensor], float] = lambda flat: float(flat.norm()),
    ) -> None:
        self._norm = norm
        self._parameters = parameters
        self._betas = betas
        self._eps = eps
        self._weight_decay = weight_decay
        self._decays = _matrices(parameters) if weight_decay else None
        self.mean = torch.zeros_like(parameters.flat)
        self.square = torch.zeros_like(parameters.flat)
        self.num_steps = 0

    @torch.no_grad()
    def step(self, gradient: torch.Tensor, lr: float) -> float:
        """Move the parameters along `gradient` [num_parameters]; returns the 2-norm of the move."""
        beta1, beta2 = self._betas
        self.num_steps += 1
        self.mean.lerp_(gradient, 1 - beta1)
        self.square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        size = lr / (1 - beta1**self.num_steps)
        denominator = (self.square / (1 - beta2**self.num_steps)).sqrt_().add_(self._eps)
        move = self.mean / denominator
        move.mul_(-size)
        if self._decays is not None:
            move.add_(self._parameters.flat * self._decays, alpha=-lr * self._weight_decay)
        self._parameters.flat.add_(move)
        return self._norm(move)

    def state(self, named: Callable[[torch.Tensor], dict[str, torch.Tensor]] | None = None) -> dict[str, torch.Tensor]:
        """For a checkpoint: moments by parameter name, and the count. named: numbers like the parameters by name; None: views."""
        moments, split = {"exp_avg": self.mean, "exp_avg_sq": self.square}, named or self._parameters.split
        named_moments = {f"{kind}.{name}": part for kind, flat in moments.items() for name, part in split(flat).items()}
        return {**named_moments, "num_steps": torch.tensor(self.num_steps, dtype=torch.int64)}

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        """Inverse of `state`. Raises ValueError when it is of another model."""
        if set(state) != set(self.state()):
            raise ValueError("optimizer state does not fit the model's parameters")
        for name, target in self.state().items():
            if name == "num_steps":
                self.num_steps = int(state[name])
            elif state[name].shape != target.shape:
                raise ValueError(f"optimizer state {name!r} has shape {tuple(state[name].shape)}, expected {tuple(target.shape)}")
            else:
                target.copy_(state[name])


def clip_scale(norm: float, max_norm: float) -> float:
    """Factor that brings a gradient of 2-norm `norm` down to `max_norm`; 1 where it is below, or max_norm is 0 (off)."""
    return min(1.0, max_norm / norm) if max_norm > 0 and norm > 0 else 1.0


def _matrices(parameters: FlatParameters) -> torch.Tensor:
    mask = torch.zeros_like(parameters.flat)
    for part in parameters.split(mask).values():
        part.fill_(float(part.dim() > 1))
    return mask
