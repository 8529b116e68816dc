"""Cross-entropy warm start."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.config.schema import WarmStartConfig
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.micro_batch import Sequence
from gyre_hpc.protocol.tensors import pack_floats, pack_ids
from gyre_hpc.train.embedded import EmbeddedTrainer
from gyre_hpc.train.warm_start import Plan, mini_batches
from gyre_hpc.transport.snapshot_store import HostSnapshotStore
from tests.contracts.training_data import VOCAB, config, micro_batch, sequence

V0 = Version(0, 0)


def _counting(seed: int, length: int = 16) -> Sequence:
    """Each token is the one before plus one: learnable from the context alone."""
    start = np.random.default_rng(seed).integers(0, VOCAB)
    return Sequence(
        execution=f"warm-0-{seed}-0",
        ids=pack_ids((start + np.arange(length)) % VOCAB),
        weights=pack_floats([0.0] + [1 / (length - 1)] * (length - 1)),
        logprobs=pack_floats(np.zeros(length)),
        on_policy=bytes(length),
        advantage=1.0,
    )


def _fitted(epochs: int, count: int = 40) -> tuple[dict[str, float], EmbeddedTrainer, HostSnapshotStore]:
    whole = config()
    whole.warm_start = WarmStartConfig(lr=2e-2, batch_tokens=128)
    store = HostSnapshotStore()
    trainer = EmbeddedTrainer(whole, vocab_size=VOCAB, store=store)
    trainer.init(V0)
    data = [micro_batch(*(_counting(i) for i in range(count)), id="warm:0", loss="cross_entropy")]
    return trainer.fit(data, epochs, V0.__class__(0, 1), lambda share: None), trainer, store


def test_imitation_learns_what_the_context_determines():
    result, _, _ = _fitted(25)
    assert result["loss"] < 0.3 < np.log(VOCAB)


def test_the_optimizer_is_fresh_after_a_warm_start():
    _, trainer, _ = _fitted(1)
    assert trainer._optimizer is not None
    assert trainer._optimizer.num_steps == 0
    assert not trainer._optimizer.mean.any()


def test_a_warm_start_with_nothing_to_imitate_is_an_error():
    with pytest.raises(ValueError, match="nothing to do"):
        _fitted(1, count=0)
    with pytest.raises(ValueError, match="nothing to do"):
        _fitted(0)


@given(lengths=st.lists(st.integers(1, 60), max_size=40), budget=st.integers(1, 100), seed=st.integers(0, 99))
def test_an_epoch_holds_every_sequence_once_within_the_budget(lengths, budget, seed):
    batches = list(mini_batches(lengths, budget, np.random.default_rng(seed)))
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    assert all(len(batch) == 1 or sum(lengths[i] for i in batch) <= budget for batch in batches)


def test_the_learning_rate_rises_then_falls_to_a_tenth():
    plan = Plan(config=config(), epochs=1)
    rates = [plan.lr(step, 100) for step in range(100)]
    top = rates.index(max(rates))
    assert max(rates) == pytest.approx(plan.config.warm_start.lr)
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert rates[-1] == pytest.approx(0.1 * plan.config.warm_start.lr, rel=0.01)


def test_length_does_not_change_the_weight_of_a_mini_batch():
    """The loss is a weighted mean: doubling all weights changes nothing."""
    results = []
    for weight in (0.1, 0.2):
        store = HostSnapshotStore()
        trainer = EmbeddedTrainer(config(), vocab_size=VOCAB, store=store)
        trainer.init(V0)
        data = [micro_batch(*(sequence(20, i, weight=weight) for i in range(4)), id="warm:0", loss="cross_entropy")]
        results.append(trainer.fit(data, 2, Version(0, 1), lambda share: None)["loss"])
    assert results[0] == pytest.approx(results[1], rel=1e-5)
