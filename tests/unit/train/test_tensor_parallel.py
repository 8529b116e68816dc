"""Two ranks that hold one model together train like one rank, in float64: gradients, steps, warm start, checkpoints."""

from pathlib import Path

import pytest
import torch

from gyre_hpc.config.schema import AlgoConfig, Config
from gyre_hpc.models.checkpoint import save_checkpoint
from gyre_hpc.models.parameters import random_parameters
from gyre_hpc.models.qwen3_config import Qwen3Config
from gyre_hpc.protocol.identity import Version
from gyre_hpc.train.base import Trainer
from gyre_hpc.train.embedded import EmbeddedTrainer
from gyre_hpc.transport.snapshot_store import HostSnapshotStore
from tests.contracts.training_data import config, micro_batch, sequence
from tests.fakes import second_rank
from tests.fakes.paired_trainer import PairedTrainer

ODD_VOCAB = 41
V0, V1, V2 = Version(0, 0), Version(0, 1), Version(0, 2)
BOUND = {"rtol": 1e-9, "atol": 1e-12}


def told(algo: AlgoConfig | None = None, **trainer) -> Config:
    made = config(algo=algo, **trainer)
    made.model.num_heads, made.model.num_kv_heads = 4, 2
    return made


def pair(made: Config) -> tuple[tuple[Trainer, HostSnapshotStore], tuple[Trainer, HostSnapshotStore]]:
    """(two ranks, one rank), each with its store. The vocabulary does not divide by two."""
    stores = HostSnapshotStore(), HostSnapshotStore()
    two = PairedTrainer(made, vocab_size=ODD_VOCAB, store=stores[0], dtype=torch.float64)
    one = EmbeddedTrainer(made, vocab_size=ODD_VOCAB, store=stores[1], dtype=torch.float64)
    return (two, stores[0]), (one, stores[1])


def batch(version: Version, seed: int):
    return [
        micro_batch(sequence(20 + 7 * i, seed + i), sequence(9, seed + 50 + i), id=f"{version.step}:{i}", version=version) for i in range(3)
    ]


def assert_same_snapshots(one: HostSnapshotStore, other: HostSnapshotStore, version: Version) -> None:
    left, right = one.get(version), other.get(version)
    assert list(left) == list(right)
    for name in left:
        torch.testing.assert_close(left[name], right[name], **BOUND)


@pytest.mark.parametrize(
    "algo",
    [AlgoConfig(), AlgoConfig(temperature=0.7, truncated_is=2.0), AlgoConfig(top_p=0.8), AlgoConfig(top_k=5, temperature=1.3)],
    ids=["plain", "tempered", "top_p", "top_k"],
)
def test_gradients_and_facts_equal_those_of_one_rank(algo: AlgoConfig):
    totals, facts = [], []
    for trainer, _ in pair(told(algo)):
        trainer.init(V0)
        trainer.wake(V0)
        facts.append([trainer.accumulate(item) for item in batch(V0, 0)])
        totals.append(trainer.sum())
    torch.testing.assert_close(totals[0], totals[1], **BOUND)
    assert totals[0].abs().max() > 0
    for mine, expected in zip(*facts, strict=True):
        assert (mine.num_targets, mine.num_on_policy, mine.clipped) == (expected.num_targets, expected.num_on_policy, expected.clipped)
        assert mine.loss_sum == pytest.approx(expected.loss_sum, rel=1e-9)


def test_tied_embeddings_get_the_gradients_of_both_uses(tmp_path: Path):
    tied = Qwen3Config(
        vocab_size=ODD_VOCAB, hidden_size=16, num_layers=1, num_heads=4, num_kv_heads=2, head_dim=8, intermediate_size=24,
        max_context=64, tie_word_embeddings=True, init_std=0.3,
    )  # fmt: skip
    save_checkpoint(tmp_path, tied, random_parameters(tied, 3))
    made = told()
    made.model.path = str(tmp_path)
    totals = []
    for trainer, _ in pair(made):
        trainer.init(V0)
        trainer.wake(V0)
        for item in batch(V0, 7):
            trainer.accumulate(item)
        totals.append(trainer.sum())
    torch.testing.assert_close(totals[0], totals[1], **BOUND)


def test_two_optimizer_steps_equal_those_of_one_rank_and_both_ranks_end_with_the_whole_snapshot():
    """Clipping takes hold, so the norm is that of the whole gradient."""
    metrics = []
    (two, stored), (one, expected) = pair(told(max_grad_norm=1e-3, weight_decay=0.1))
    for trainer in (two, one):
        trainer.init(V0)
        trainer.wake(V0)
        for version, following in ((V0, V1), (V1, V2)):
            for item in batch(version, 10 * version.step):
                trainer.accumulate(item)
            metrics.append(trainer.apply(trainer.sum(), 4, following))
    for version in (V0, V1, V2):
        if version in stored.versions():
            assert_same_snapshots(stored, expected, version)
    assert metrics[0] == pytest.approx(metrics[2], rel=1e-9) and metrics[1] == pytest.approx(metrics[3], rel=1e-9)
    assert metrics[0]["clip_scale"] < 1
    second_rank.get().make(-1, "tests.fakes.paired_trainer", "store_of", stored.__dict__["paired"])
    second_rank.get().send("get", -1, V2)
    assert all(torch.equal(tensor, stored.get(V2)[name]) for name, tensor in second_rank.get().hear().items()), "to the last bit"


def test_the_warm_start_is_that_of_one_rank():
    data = [micro_batch(*(sequence(20 + i, i, advantage=1.0) for i in range(6)), id="warm:0", loss="cross_entropy")]
    results, stores = [], []
    for trainer, store in pair(told()):
        trainer.init(V0)
        results.append(trainer.fit(data, 3, V1, lambda share: None))
        stores.append(store)
    assert results[0] == pytest.approx(results[1], rel=1e-9)
    for name, tensor in stores[0].get(V1).items():
        torch.testing.assert_close(tensor, stores[1].get(V1)[name], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("saves", ["two", "one"])
def test_a_checkpoint_of_either_is_loaded_by_the_other_and_goes_on_the_same(tmp_path: Path, saves: str):
    (two, of_two), (one, of_one) = pair(told())
    first, second = (two, one) if saves == "two" else (one, two)
    first.init(V0)
    first.wake(V0)
    for item in batch(V0, 0):
        first.accumulate(item)
    first.apply(first.sum(), 4, V1)
    first.save(tmp_path / "0.1", {"a": 1})
    again, after = Version(1, 1), Version(1, 2)
    for trainer in (first, second):
        assert trainer.load(tmp_path / "0.1", again) == {"a": 1}
        trainer.wake(again)
        for item in batch(again, 20):
            trainer.accumulate(item)
    assert first.apply(first.sum(), 4, after) == pytest.approx(second.apply(second.sum(), 4, after), rel=1e-9)
    assert_same_snapshots(of_two, of_one, after)


def test_what_the_first_rank_refuses_leaves_no_rank_waiting():
    (two, _), _ = pair(told())
    two.init(V0)
    two.wake(V0)
    with pytest.raises(ValueError, match="shape"):
        two.add_sum(torch.zeros(3))
    with pytest.raises(ValueError, match="shape"):
        two.apply(None, 1, V1)
    two.accumulate(batch(V0, 0)[0])
    two.apply(two.sum(), 1, V1)
