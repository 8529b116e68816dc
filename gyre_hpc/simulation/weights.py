"""Weights as their history, gradients as what was added up: equality is provenance, so nothing can be right by chance."""

from dataclasses import dataclass

from gyre_hpc.protocol.identity import Version

CONFIGURATION = "configuration"
"""Origin of weights that nothing was fitted to."""


@dataclass(frozen=True, slots=True, eq=False)
class Content:
    """One prepared micro-batch. Identity counts: another preparation of the same id is another content."""

    id: str
    update: int
    version: Version
    executions: tuple[str, ...]
    num_tokens: int
    num_targets: int


@dataclass(frozen=True, slots=True)
class Weights:
    """Parameters. `steps`: for each optimizer step behind them, the executions it consumed."""

    origin: str
    steps: tuple[tuple[str, ...], ...] = ()

    def stepped(self, executions: tuple[str, ...]) -> "Weights":
        return Weights(self.origin, (*self.steps, executions))


@dataclass(frozen=True, slots=True)
class Gradient:
    """One micro-batch's gradient, computed with these parameters."""

    content: Content
    at: Weights


Sum = list[Gradient]


def ids_of(total: Sum) -> list[str]:
    return [gradient.content.id for gradient in total]
