"""Small models and micro-batches for tests of trainers."""

import numpy as np

from gyre_hpc.config.schema import AlgoConfig, Config, ModelConfig, TrainerConfig, TrainerKind
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.micro_batch import MicroBatch, Sequence
from gyre_hpc.protocol.tensors import pack_floats, pack_ids

VOCAB = 40


def config(kind: TrainerKind = TrainerKind.embedded, *, algo: AlgoConfig | None = None, **trainer) -> Config:
    return Config(
        trainer=TrainerConfig(kind=kind, **trainer),
        algo=algo or AlgoConfig(),
        model=ModelConfig(hidden_size=16, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=8, intermediate_size=24, init_std=0.3),
    )


def sequence(length: int, seed: int, *, weight: float | None = None, advantage: float | None = None) -> Sequence:
    """Random tokens; about half of them targets."""
    dice = np.random.default_rng(seed)
    is_target = dice.random(length) < 0.5
    is_target[0], is_target[-1] = False, True
    weights = np.where(is_target, 1 / is_target.sum() if weight is None else weight, 0.0)
    return Sequence(
        execution=f"train-0-{seed}-0",
        ids=pack_ids(dice.integers(0, VOCAB, length)),
        weights=pack_floats(weights),
        logprobs=pack_floats(np.where(is_target, -np.log(VOCAB) + dice.normal(size=length) * 0.3, 0.0)),
        on_policy=np.zeros(length, dtype=np.uint8).tobytes(),
        advantage=float(dice.normal()) if advantage is None else advantage,
    )


def micro_batch(*sequences: Sequence, id: str = "0:0", version: Version = Version(0, 0), loss: str = "policy") -> MicroBatch:  # noqa: B008
    targets = sum(int((np.frombuffer(s.weights, "<f4") > 0).sum()) for s in sequences)
    return MicroBatch(
        id=id,
        update=version.step,
        version=version,
        loss=loss,
        sequences=sequences,
        num_tokens=sum(len(s.ids) // 4 for s in sequences),
        num_targets=targets,
    )


def numbers(values) -> np.ndarray:
    """A copy of a sum or a snapshot's tensor of either kind."""
    return np.array(values if isinstance(values, np.ndarray) else values.numpy())
