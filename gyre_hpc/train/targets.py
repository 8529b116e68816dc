"""Sequences of a micro-batch laid end to end, and which of their tokens are trained. numpy only.

The first token of a sequence has no context and is never a target; what a sequence says of itself is checked here, once.
"""

from dataclasses import dataclass

import numpy as np

from gyre_hpc.protocol.micro_batch import Sequence
from gyre_hpc.protocol.tensors import unpack_floats, unpack_ids


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Packed:
    """N tokens of all sequences, M targets among them."""

    ids: np.ndarray
    """int64 [N]."""
    lengths: tuple[int, ...]
    """Tokens of each sequence; they sum to N."""
    rows: np.ndarray
    """int64 [M]: places of the targets among the N tokens."""
    weights: np.ndarray
    """float32 [M], > 0."""
    behavior: np.ndarray
    """float32 [M]: log-probs they were sampled with."""
    advantages: np.ndarray
    """float64 [M]."""
    is_on_policy: np.ndarray
    """bool [M]."""


def pack(sequences: tuple[Sequence, ...]) -> Packed:
    """Lay checked `sequences` end to end."""
    ids, lengths, rows, weights, behavior, advantages, on_policy = [], [], [], [], [], [], []
    start = 0
    for sequence in sequences:
        own = unpack_ids(sequence.ids)
        weight, logprob = unpack_floats(sequence.weights), unpack_floats(sequence.logprobs)
        on = np.frombuffer(sequence.on_policy, dtype=np.uint8)
        places = np.flatnonzero(weight)
        ids.append(own)
        lengths.append(len(own))
        rows.append(places + start)
        weights.append(weight[places])
        behavior.append(logprob[places])
        advantages.append(np.full(len(places), sequence.advantage))
        on_policy.append(on[places] != 0)
        start += len(own)
    return Packed(
        ids=_join(ids, np.int64),
        lengths=tuple(lengths),
        rows=_join(rows, np.int64),
        weights=_join(weights, np.float32),
        behavior=_join(behavior, np.float32),
        advantages=_join(advantages, np.float64),
        is_on_policy=_join(on_policy, np.bool_),
    )


def check(sequences: tuple[Sequence, ...], vocab_size: int) -> None:
    """Raises ValueError naming the execution whose arrays do not fit together or whose tokens the model does not know."""
    for sequence in sequences:
        ids, on = unpack_ids(sequence.ids), np.frombuffer(sequence.on_policy, dtype=np.uint8)
        _check(sequence, ids, unpack_floats(sequence.weights), unpack_floats(sequence.logprobs), on)
        if int(ids.min()) < 0 or int(ids.max()) >= vocab_size:
            raise ValueError(f"sequence of {sequence.execution}: token ids outside [0, {vocab_size})")


def length(sequence: Sequence) -> int:
    """Its number of tokens."""
    return len(sequence.ids) // 4


def _join(arrays: list[np.ndarray], dtype: type) -> np.ndarray:
    return np.concatenate(arrays).astype(dtype) if arrays else np.zeros(0, dtype=dtype)


def _check(sequence: Sequence, ids: np.ndarray, weights: np.ndarray, logprobs: np.ndarray, on: np.ndarray) -> None:
    if not len(ids) or not len(ids) == len(weights) == len(logprobs) == len(on):
        raise ValueError(
            f"sequence of {sequence.execution}: ids, weights, logprobs, on_policy have "
            f"{len(ids)}, {len(weights)}, {len(logprobs)}, {len(on)} entries; they must be equal and not 0"
        )
    if weights[0] != 0:
        raise ValueError(f"sequence of {sequence.execution}: its first token has a weight but no context")
    if not (weights >= 0).all() or not np.isfinite(weights).all():
        raise ValueError(f"sequence of {sequence.execution}: weights must be finite and not negative")
