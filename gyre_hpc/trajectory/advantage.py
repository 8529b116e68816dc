"""Group advantages (GRPO): A_e = score_e - mean of its group, divided by the group's standard deviation if asked for.

The baseline is over executions, never over rows, and over scored and partial ones alone: an execution without a score is
absent, not 0. Invariants (each has a test):
  - an unscored or infra_error sibling changes nobody's advantage;
  - a group whose scores are all equal gives exactly 0; its executions still count in |S|;
  - advantages of a group sum to 0.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence

from gyre_hpc.config.schema import Advantage
from gyre_hpc.trajectory.base import ScoredExecution

COUNTED_STATES = ("scored", "partial")
_FLAT = 1e-9
"""Spread below which scores are equal up to rounding."""


def is_counted(execution: ScoredExecution) -> bool:
    """Whether it enters the baseline. Raises ValueError for a counted execution without a finite score."""
    if execution.state not in COUNTED_STATES:
        return False
    if execution.score is None or not math.isfinite(execution.score):
        raise ValueError(f"execution {execution.execution} is {execution.state} but its score is {execution.score}")
    return True


def scores_of(executions: Sequence[ScoredExecution]) -> dict[str, float]:
    """Scores of those that count, by execution id."""
    return {one.execution: one.score for one in executions if is_counted(one) and one.score is not None}


def group_advantages(scores: Mapping[str, float], kind: Advantage) -> dict[str, float]:
    """Advantages of the counted executions of one complete group."""
    if not scores:
        return {}
    values = list(scores.values())
    if max(values) - min(values) <= _FLAT:
        return dict.fromkeys(scores, 0.0)
    mean = math.fsum(values) / len(values)
    scale = 1.0
    if kind is Advantage.grpo:
        scale = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
    return {execution: (score - mean) / scale for execution, score in scores.items()}


def shuffle_scores(scores: Mapping[str, float], seed: str) -> dict[str, float]:
    """The same scores, dealt out anew; which ones depends on `seed` and the ids alone.

    The pool is the caller's: a group's scores keep the streaming of complete groups, a whole batch's do not.
    """
    order = sorted(scores, key=lambda one: hashlib.blake2b(f"{seed}\n{one}".encode(), digest_size=16).digest())
    return dict(zip(order, (scores[one] for one in sorted(scores)), strict=True))


def shuffled_advantages(scores: Mapping[str, float], kind: Advantage, seed: str) -> dict[str, float]:
    """Control `shuffle_rewards`: advantages of the shuffled scores, without what these share with the true ones.

    A few dozen groups, dealt at random, still agree with the truth by several percent in the one or the other direction, and
    an optimizer that normalizes its steps makes much of that. So the part along the true advantages is taken out of each
    group: what is left sums to 0, is orthogonal to the truth, and a control that rises with it has learned from something else
    than rewards.
    """
    true, dealt = group_advantages(scores, kind), group_advantages(shuffle_scores(scores, seed), kind)
    square = math.fsum(value**2 for value in true.values())
    if square == 0.0:
        return true
    shared = math.fsum(true[one] * dealt[one] for one in true) / square
    return {one: dealt[one] - shared * true[one] for one in true}
