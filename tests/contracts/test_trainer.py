"""Contract of Trainer, for every kind; `two_ranks` is the embedded one whose model two processes hold together."""

import numpy as np
import pytest

from gyre_hpc.config.schema import TrainerKind
from gyre_hpc.protocol.identity import Version
from gyre_hpc.train import create_trainer
from gyre_hpc.transport.snapshot_store import HostSnapshotStore
from tests.contracts.training_data import VOCAB, config, micro_batch, numbers, sequence
from tests.fakes.paired_trainer import PairedTrainer

V0, V1, V2 = Version(0, 0), Version(0, 1), Version(0, 2)


@pytest.fixture(params=["embedded", "two_ranks", "timed"])
def kind(request):
    return request.param


@pytest.fixture
def make(kind):
    if kind == "two_ranks":
        told = config()
        told.model.num_kv_heads = 2
        return lambda store: PairedTrainer(told, vocab_size=VOCAB, store=store)
    return lambda store: create_trainer(config(TrainerKind[kind]), vocab_size=VOCAB, store=store)


@pytest.fixture
def store():
    return HostSnapshotStore()


@pytest.fixture
def core(make, store):
    trainer = make(store)
    trainer.init(V0)
    trainer.wake(V0)
    return trainer


def _batch(count: int = 4):
    return [micro_batch(sequence(20 + 5 * i, i), id=f"0:{i}") for i in range(count)]


def _snapshot(store, version):
    return {name: numbers(tensor) for name, tensor in store.get(version).items()}


def _same(left, right) -> bool:
    return left.keys() == right.keys() and all(np.array_equal(left[name], right[name]) for name in left)


def test_init_puts_the_first_snapshot(make, store):
    make(store).init(V0)
    assert store.versions() == (V0,)


def test_the_same_seed_gives_the_same_start(make, store):
    other = HostSnapshotStore()
    make(store).init(V0)
    make(other).init(V0)
    assert _same(_snapshot(store, V0), _snapshot(other, V0))


def test_waking_needs_the_snapshot(make, store):
    with pytest.raises(KeyError):
        make(store).wake(V1)


def test_waking_and_sleeping_measure_memory(core):
    for memory in (core.sleep(), core.wake(V0)):
        assert memory.rank == 0
        assert memory.used > 0
        assert memory.free > 0


def test_a_sleeping_trainer_accumulates_nothing(core):
    core.sleep()
    with pytest.raises(ValueError, match="asleep"):
        core.accumulate(_batch()[0])


def test_waking_begins_with_a_zero_sum(core):
    core.accumulate(_batch()[0])
    core.sleep()
    core.wake(V0)
    assert not numbers(core.sum()).any()


def test_a_micro_batch_of_another_version_is_refused_and_leaves_the_sum_alone(core):
    core.accumulate(_batch()[0])
    before = numbers(core.sum())
    with pytest.raises(ValueError, match=r"0\.1"):
        core.accumulate(micro_batch(sequence(20, 0), version=V1))
    assert np.array_equal(before, numbers(core.sum()))


def test_sums_are_additive(core, make, store):
    first, second = make(store), make(store)
    batch = _batch()
    for trainer, part in ((core, batch), (first, batch[:1]), (second, batch[1:])):
        trainer.wake(V0)
        for item in part:
            trainer.accumulate(item)
    first.add_sum(second.sum())
    np.testing.assert_allclose(numbers(first.sum()), numbers(core.sum()), rtol=1e-5, atol=1e-6)


def test_zero_voids_everything(core):
    batch = _batch()
    core.accumulate(batch[0])
    alone = numbers(core.sum())
    core.accumulate(batch[1])
    core.zero()
    assert not numbers(core.sum()).any()
    core.accumulate(batch[0])
    assert np.array_equal(numbers(core.sum()), alone)


def test_sums_travel_as_bytes(core):
    core.accumulate(_batch()[0])
    back = core.sum_from_bytes(core.sum_to_bytes())
    assert np.array_equal(numbers(back), numbers(core.sum()))


def test_bytes_of_the_wrong_length_are_refused(core):
    with pytest.raises(ValueError, match="bytes"):
        core.sum_from_bytes(core.sum_to_bytes()[:-4])


def test_a_sum_taken_from_bytes_is_independent_of_the_trainer(core):
    core.accumulate(_batch()[0])
    back = core.sum_from_bytes(core.sum_to_bytes())
    core.zero()
    assert numbers(back).any()


def test_apply_publishes_the_next_version_and_begins_anew(core, store):
    for item in _batch():
        core.accumulate(item)
    metrics = core.apply(core.sum(), 4, V1)
    assert set(metrics) >= {"grad_norm", "lr", "clip_scale", "update_norm"}
    assert store.versions() == (V0, V1)
    assert not numbers(core.sum()).any()
    core.accumulate(micro_batch(sequence(20, 9), id="1:0", version=V1))


def test_apply_does_not_write_to_the_total(core):
    core.accumulate(_batch()[0])
    total = core.sum_from_bytes(core.sum_to_bytes())
    before = numbers(total)
    core.apply(total, 2, V1)
    assert np.array_equal(before, numbers(total))


def test_a_batch_without_executions_makes_no_update(core, store):
    with pytest.raises(ValueError, match="num_executions=0"):
        core.apply(core.sum(), 0, V1)
    assert store.versions() == (V0,)


def test_a_core_without_a_total_makes_no_update(core, store):
    with pytest.raises(ValueError, match="shape"):
        core.apply(None, 1, V1)
    assert store.versions() == (V0,)


def test_a_snapshot_never_changes_by_later_training(core, store):
    before = _snapshot(store, V0)
    core.accumulate(_batch()[0])
    core.apply(core.sum(), 1, V1)
    assert _same(before, _snapshot(store, V0))


def _two_steps(trainer, first: Version, second: Version):
    trainer.wake(first)
    trainer.accumulate(micro_batch(sequence(25, 7), id="9:0", version=first))
    return trainer.apply(trainer.sum(), 1, second)


def test_after_save_and_load_the_next_step_is_the_same(core, make, store, tmp_path):
    core.accumulate(_batch()[0])
    core.apply(core.sum(), 1, V1)
    state = {"consumed": ["train-0-0-0"], "counters": {"begun": 3}, "manifest_hash": "abc"}
    core.save(tmp_path / "0.1", state)
    other_store = HostSnapshotStore()
    other = make(other_store)
    assert other.load(tmp_path / "0.1", Version(1, 1)) == state
    assert _two_steps(core, V1, V2) == _two_steps(other, Version(1, 1), Version(1, 2))
    if "timed.version" not in store.get(V2):
        assert _same(_snapshot(store, V2), _snapshot(other_store, Version(1, 2)))


def test_load_without_a_marker_and_of_damaged_files_is_refused(core, make, store, tmp_path):
    folder = tmp_path / "0.0"
    core.save(folder, {"a": 1})
    (folder / "state.json").write_text('{"a": 2}\n')
    with pytest.raises(ValueError, match=r"state\.json"):
        make(store).load(folder, Version(1, 0))
    (folder / "DONE").unlink()
    with pytest.raises(FileNotFoundError):
        make(store).load(folder, Version(1, 0))


def test_fit_reports_progress_and_ends_with_a_snapshot(core, store):
    seen = []
    data = [micro_batch(*(sequence(20, i, advantage=1.0) for i in range(6)), id="warm:0", loss="cross_entropy")]
    result = core.fit(data, 2, V1, seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert result["tokens"] == 240
    assert store.versions()[-1] == V1


def test_a_trainer_that_works_costs_nothing_more(core, kind):
    cost = core.cost_s("accumulate", 2000)
    assert cost == (0.1 if kind == "timed" else 0.0)
