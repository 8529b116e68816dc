"""Admitted trajectories -> sequences -> micro-batches. Arrays only; the loops run over calls, never over tokens.

Invariants (each has a test):
  - every target of the admitted paths has weight 1/|T_e| in exactly one sequence, everything else 0: the weights of an
    execution sum to 1 however many trajectories it has;
  - a micro-batch stays under the token budget, except one sequence that is alone;
  - equal input gives equal micro-batches, ids included.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gyre_hpc.protocol import micro_batch as wire
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.tensors import pack_floats, pack_ids
from gyre_hpc.trajectory.admission import Admission
from gyre_hpc.trajectory.base import Call, Trajectory
from gyre_hpc.trajectory.tree import CallTree


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Packed:
    """A sequence with its sizes."""

    sequence: wire.Sequence
    num_tokens: int
    num_targets: int
    """Positions with weight > 0."""
    num_on_policy: int


def sequences_of(execution: str, tree: CallTree, admission: Admission, advantage: float, version: Version) -> list[Packed]:
    """One sequence per admitted trajectory. `version`: that of the weights the update starts from."""
    trained: set[str] = set()
    found = []
    for trajectory in admission.trajectories:
        new = frozenset(trajectory.calls) - trained
        found.append(_sequence(execution, tree, trajectory, new, advantage, 1.0 / admission.num_targets, version))
        trained |= new
    return found


def _sequence(
    execution: str, tree: CallTree, trajectory: Trajectory, new: frozenset[str], advantage: float, weight: float, version: Version
) -> Packed:
    ids = tree.full_ids(trajectory.leaf)
    weights, logprobs = np.zeros(len(ids), np.float32), np.zeros(len(ids), np.float32)
    on_policy = np.zeros(len(ids), np.uint8)
    at, num_targets = 0, 0
    for name in trajectory.calls:
        call = tree.calls[name]
        start, end = at + len(call.suffix_ids), at + len(call.suffix_ids) + len(call.output_ids)
        at = end
        if name not in new or tree.num_targets(name) == 0:
            continue
        first = tree.first_target(name)
        weights[start + first : end] = weight
        logprobs[start + first : end] = call.logprobs[first:]
        on_policy[start + first : end] = on_policy_mask(call, version)[first:]
        num_targets += tree.num_targets(name)
    sequence = wire.Sequence(
        execution=execution,
        ids=pack_ids(ids),
        weights=pack_floats(weights),
        logprobs=pack_floats(logprobs),
        on_policy=on_policy.tobytes(),
        advantage=advantage,
    )
    return Packed(sequence=sequence, num_tokens=len(ids), num_targets=num_targets, num_on_policy=int(on_policy.sum()))


def on_policy_mask(call: Call, version: Version) -> npt.NDArray[np.uint8]:
    """uint8 [O]: 1 where the token was sampled with `version` and attended to no older KV."""
    sampled = np.zeros(len(call.output_ids), np.uint8)
    for span in call.spans:
        if span.version == version:
            sampled[span.start : span.end] = 1
    start = 0
    for end, oldest in call.oldest_kv:
        if oldest != version:
            sampled[start:end] = 0
        start = end
    return sampled


def pack(
    packed: Sequence[Packed], *, budget: int, prefix: str, update: int, version: Version, first_ordinal: int, loss: str
) -> tuple[wire.MicroBatch, ...]:
    """Sequences -> micro-batches of at most `budget` tokens; ids are `<prefix>:<ordinal>` from `first_ordinal` on."""
    return tuple(
        wire.MicroBatch(
            id=f"{prefix}:{first_ordinal + number}",
            update=update,
            version=version,
            loss=loss,
            sequences=tuple(one.sequence for one in members),
            num_tokens=sum(one.num_tokens for one in members),
            num_targets=sum(one.num_targets for one in members),
        )
        for number, members in enumerate(fill(packed, budget))
    )


def fill(packed: Iterable[Packed], budget: int) -> list[list[Packed]]:
    """Bins of at most `budget` tokens: longest first, each into the fullest bin with room. A longer one stays alone."""
    bins: list[list[Packed]] = []
    room: list[int] = []
    for one in sorted(packed, key=lambda item: -item.num_tokens):
        fitting = [number for number, free in enumerate(room) if free >= one.num_tokens]
        if fitting:
            best = min(fitting, key=lambda number: (room[number], number))
            bins[best].append(one)
            room[best] -= one.num_tokens
        else:
            bins.append([one])
            room.append(budget - one.num_tokens)
    return bins
