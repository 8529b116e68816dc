"""The embedded trainer's sums: independent of how sequences are divided, and equal to gradients worked out separately."""

import numpy as np
import pytest
import torch

from gyre_hpc.config.schema import AlgoConfig
from gyre_hpc.models.qwen3 import forward
from gyre_hpc.models.qwen3_config import from_model_config
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.micro_batch import MicroBatch
from gyre_hpc.protocol.tensors import pack_floats, unpack_floats, unpack_ids
from gyre_hpc.train.embedded import EmbeddedTrainer
from gyre_hpc.transport.snapshot_store import HostSnapshotStore
from tests.contracts.training_data import VOCAB, config, micro_batch, sequence

V0 = Version(0, 0)


def _trainer(dtype=torch.float32, **options) -> EmbeddedTrainer:
    trainer = EmbeddedTrainer(config(**options), vocab_size=VOCAB, store=HostSnapshotStore(), dtype=dtype)
    trainer.init(V0)
    trainer.wake(V0)
    return trainer


def _sum(micro_batches: list[MicroBatch], **options) -> torch.Tensor:
    trainer = _trainer(**options)
    for item in micro_batches:
        trainer.accumulate(item)
    return trainer.sum().clone()


def _distance(left: torch.Tensor, right: torch.Tensor) -> float:
    return float((left - right).norm() / right.norm())


def test_the_same_tokens_in_1_or_5_micro_batches_give_one_gradient():
    """D2."""
    sequences = [sequence(30 + 11 * i, i) for i in range(10)]
    whole = _sum([micro_batch(*sequences)])
    parts = _sum([micro_batch(*sequences[i : i + 2], id=f"0:{i}") for i in range(0, 10, 2)])
    assert _distance(parts, whole) < 1e-5


def test_an_execution_in_1_or_5_sequences_weighs_the_same():
    """D3: the weights are those of the execution's targets, so more rows of it add nothing."""
    own = sequence(40, 3)
    weights = unpack_floats(own.weights)
    places = np.flatnonzero(weights)
    rows = []
    for part in np.array_split(places, 5):
        mask = np.zeros_like(weights)
        mask[part] = weights[part]
        rows.append(type(own)(own.execution, own.ids, pack_floats(mask), own.logprobs, own.on_policy, own.advantage))
    assert _distance(_sum([micro_batch(*rows)]), _sum([micro_batch(own)])) < 1e-5


def test_the_division_by_executions_comes_before_the_clipping():
    """Twice the sum over twice the executions is the same update."""
    moves = []
    for factor in (1, 2):
        trainer = _trainer(max_grad_norm=0.01)
        trainer.accumulate(micro_batch(sequence(40, 1)))
        metrics = trainer.apply(trainer.sum() * factor, 3 * factor, Version(0, 1))
        assert metrics["clip_scale"] < 1
        moves.append(metrics)
    assert moves[0] == pytest.approx(moves[1], rel=1e-6)


def _separate_gradient(params: dict, model, sequences, algo: AlgoConfig) -> torch.Tensor:
    """Each sequence alone through the plain forward, the loss of each target by hand, summed."""
    total = None
    for item in sequences:
        ids = torch.from_numpy(unpack_ids(item.ids).astype(np.int64))
        leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
        logprobs = torch.log_softmax(forward(leaves, model, ids, [len(ids)]) / algo.temperature, -1)
        loss = torch.zeros((), dtype=torch.float64)
        for place in np.flatnonzero(unpack_floats(item.weights)):
            ratio = (logprobs[place - 1, ids[place]] - float(unpack_floats(item.logprobs)[place])).exp()
            clipped = ratio.clamp(1 - algo.clip_low, 1 + algo.clip_high)
            loss = loss - float(unpack_floats(item.weights)[place]) * torch.minimum(ratio * item.advantage, clipped * item.advantage)
        parts = torch.autograd.grad(loss, list(leaves.values()))
        flat = torch.cat([part.reshape(-1) for part in parts])
        total = flat if total is None else total + flat
    return total


def test_the_packed_gradient_is_the_sum_of_separate_gradients_over_several_steps():
    """D6, in float64, against torch's own AdamW."""
    algo = AlgoConfig(temperature=0.8)
    trainer = _trainer(torch.float64, algo=algo, lr=5e-3)
    model = from_model_config(config().model, VOCAB)
    params = {name: torch.nn.Parameter(value.clone()) for name, value in trainer._room().tensors().items()}
    reference = torch.optim.AdamW(params.values(), lr=5e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)
    for step in range(4):
        version = Version(0, step)
        sequences = [sequence(9 + 4 * i, 10 * step + i) for i in range(4)]
        trainer.wake(version)
        trainer.accumulate(micro_batch(*sequences[:3], id=f"{step}:0", version=version))
        trainer.accumulate(micro_batch(sequences[3], id=f"{step}:1", version=version))
        expected = _separate_gradient({name: value.detach() for name, value in params.items()}, model, sequences, algo)
        assert _distance(trainer.sum(), expected) < 1e-9
        trainer.apply(trainer.sum(), 4, Version(0, step + 1))
        mean = expected / 4
        clipped = mean * min(1.0, 1.0 / float(mean.norm()))
        for value, part in zip(params.values(), clipped.split([value.numel() for value in params.values()]), strict=True):
            value.grad = part.view_as(value)
        reference.step()
        moved = torch.cat([value.detach().flatten() for value in params.values()])
        assert _distance(trainer._room().flat, moved) < 1e-7


def test_packed_sequences_do_not_see_each_other():
    first, second = sequence(12, 1), sequence(15, 2)
    together = _sum([micro_batch(first, second)], dtype=torch.float64)
    apart = _sum([micro_batch(first), micro_batch(second, id="0:1")], dtype=torch.float64)
    assert _distance(together, apart) < 1e-12


def test_on_policy_tokens_have_no_logprob_gap_at_any_temperature():
    """A10: behavior log-probs at the sampling temperature against the trainer's at the same one."""
    for algo in (AlgoConfig(), AlgoConfig(temperature=0.7), AlgoConfig(temperature=0.7, top_p=0.9, top_k=8)):
        trainer = _trainer(algo=algo)
        own = sequence(50, 4)
        ids = torch.from_numpy(unpack_ids(own.ids).astype(np.int64))
        scores = forward(trainer._room().tensors(), trainer._model, ids, [len(ids)])
        from gyre_hpc.train.sampled_distribution import target_logprobs

        behavior = np.concatenate([[0.0], target_logprobs(scores[:-1], ids[1:], algo).numpy()])
        on = np.zeros(50, dtype=np.uint8)
        on[25:] = 1
        targets = unpack_floats(own.weights) > 0
        behavior[~targets] = 0.0
        # Off-policy tokens may be anywhere: they must not enter the gap.
        behavior[:25] -= 3.0 * targets[:25]
        item = type(own)(own.execution, own.ids, own.weights, pack_floats(behavior), on.tobytes(), own.advantage)
        facts = trainer.accumulate(micro_batch(item))
        assert facts.num_on_policy == int(targets[25:].sum()) > 0
        assert facts.max_logprob_gap < 1e-5


def test_raw_logprobs_against_scaled_ones_show_as_a_gap():
    trainer = _trainer(algo=AlgoConfig(temperature=0.7))
    own = sequence(50, 4)
    ids = torch.from_numpy(unpack_ids(own.ids).astype(np.int64))
    raw = torch.log_softmax(forward(trainer._room().tensors(), trainer._model, ids, [50]), -1)
    behavior = np.concatenate([[0.0], raw[:-1].gather(1, ids[1:, None])[:, 0].numpy()])
    item = type(own)(own.execution, own.ids, own.weights, pack_floats(behavior), b"\x01" * 50, own.advantage)
    assert trainer.accumulate(micro_batch(item)).max_logprob_gap > 0.01


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": pack_floats([0.5] * 20)}, "first token"),
        ({"weights": pack_floats([0.0, *[np.nan] * 19])}, "finite"),
        ({"logprobs": pack_floats([0.0] * 19)}, "entries"),
        ({"ids": np.full(20, VOCAB, dtype="<i4").tobytes()}, "token ids outside"),
        ({"advantage": float("nan")}, "loss nan"),
    ],
)
def test_a_bad_micro_batch_is_named_and_leaves_the_sum_alone(change, message):
    trainer = _trainer()
    trainer.accumulate(micro_batch(sequence(30, 0)))
    before = trainer.sum().clone()
    good = sequence(20, 1)
    fields = {name: getattr(good, name) for name in good.__struct_fields__}
    with pytest.raises(ValueError, match=message):
        trainer.accumulate(micro_batch(good, type(good)(**{**fields, **change}), id="0:1"))
    assert torch.equal(before, trainer.sum())


def test_a_gradient_that_is_not_finite_moves_nothing():
    trainer = _trainer()
    before = trainer._room().flat.clone()
    with pytest.raises(ValueError, match="norm"):
        trainer.apply(torch.full_like(trainer.sum(), float("inf")), 1, Version(0, 1))
    assert torch.equal(before, trainer._room().flat)


def test_a_satellite_never_applies():
    store = HostSnapshotStore()
    EmbeddedTrainer(config(), vocab_size=VOCAB, store=store).init(V0)
    satellite = EmbeddedTrainer(config(), vocab_size=VOCAB, store=store)
    satellite.wake(V0)
    with pytest.raises(ValueError, match="only the core"):
        satellite.apply(satellite.sum(), 1, Version(0, 1))


def test_the_core_keeps_its_optimizer_through_sleep():
    """Authoritative state is in one place in each role."""
    trainer, other = _trainer(), _trainer()
    for each in (trainer, other):
        each.accumulate(micro_batch(sequence(30, 0)))
        each.apply(each.sum(), 1, Version(0, 1))
    trainer.sleep()
    trainer.wake(Version(0, 1))
    for each in (trainer, other):
        each.accumulate(micro_batch(sequence(30, 1), version=Version(0, 1)))
        each.apply(each.sum(), 1, Version(0, 2))
    assert torch.equal(trainer._room().flat, other._room().flat)
