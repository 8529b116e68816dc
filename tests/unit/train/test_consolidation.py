"""Core and satellites together give the gradient of the core alone, by hand-in and by reduce; embedded and timed."""

import threading

import numpy as np
import pytest

from gyre_hpc.config.schema import TrainerKind, TransportConfig
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.to_batch import HandIn
from gyre_hpc.train import create_trainer
from gyre_hpc.transport.groups import create_groups
from gyre_hpc.transport.snapshot_store import HostSnapshotStore
from tests.contracts.training_data import VOCAB, config, micro_batch, numbers, sequence

V0, V1 = Version(0, 0), Version(0, 1)
BATCH = [micro_batch(sequence(20 + 7 * i, i), sequence(11, 90 + i), id=f"0:{i}") for i in range(6)]


class _Cell:
    def __init__(self, kind: TrainerKind) -> None:
        self.kind = kind
        self.store = HostSnapshotStore()
        self.url = self.store.serve("127.0.0.1", "token")
        self.trainer = create_trainer(config(kind), vocab_size=VOCAB, store=self.store)
        self.groups = create_groups(TransportConfig(groups="c10d" if kind is TrainerKind.embedded else "memory"), "127.0.0.1")

    def close(self) -> None:
        self.store.close()
        self.groups.close()


@pytest.fixture(params=list(TrainerKind), ids=lambda kind: kind.name)
def cells(request):
    """Core, two satellites that pulled its snapshot, and a cell that does everything alone."""
    made = [_Cell(request.param) for _ in range(4)]
    made[0].trainer.init(V0)
    for cell in made[1:]:
        cell.store.pull(V0, (made[0].url,), 5.0)
    for cell in made:
        cell.trainer.wake(V0)
    for item in BATCH:
        made[3].trainer.accumulate(item)
    yield made
    for cell in made:
        cell.close()


def _reduce(cells, generation: int):
    address = cells[0].groups.host(generation, "nonce")
    totals = {}

    def one(rank: int) -> None:
        totals[rank] = cells[rank].groups.reduce(generation, address, "nonce", rank, len(cells), cells[rank].trainer.sum(), 20.0)

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(len(cells))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return totals[0]


def _share(cells, items) -> None:
    for index, item in enumerate(items):
        cells[index % len(cells)].trainer.accumulate(item)


def _close(left, right) -> bool:
    left, right = numbers(left), numbers(right)
    return bool(np.linalg.norm(left - right) <= 1e-5 * np.linalg.norm(right))


def test_a_batch_shared_by_three_cells_gives_the_gradient_of_one(cells):
    core, first, second, alone = cells
    _share((core, first, second), BATCH)
    assert _close(_reduce((core, first, second), 1), alone.trainer.sum())


def test_a_sum_handed_in_counts_like_one_reduced(cells):
    core, first, _, alone = cells
    _share((core, first), BATCH)
    mine = HandIn("cell-1", 0, tuple(item.id for item in BATCH[1::2]))
    first.store.hand_in(core.url, 0, mine, first.trainer.sum_to_bytes(), 5.0)
    ((held, data),) = core.store.held(0).values()
    core.trainer.add_sum(core.trainer.sum_from_bytes(data))
    assert held == mine
    assert _close(core.trainer.sum(), alone.trainer.sum())


def test_a_lost_satellite_s_micro_batches_done_again_give_the_same_gradient(cells):
    core, first, second, alone = cells
    _share((core, first, second), BATCH)
    # The second is lost: its ids go to the others, the first is voided too and does its own again.
    first.trainer.zero()
    for item in BATCH[1::3] + BATCH[2::3]:
        first.trainer.accumulate(item)
    assert _close(_reduce((core, first), 2), alone.trainer.sum())


def test_a_micro_batch_counted_twice_or_lost_shows(cells):
    core, first, _, alone = cells
    _share((core, first), BATCH)
    core.trainer.accumulate(BATCH[1])
    assert not _close(_reduce((core, first), 3), alone.trainer.sum())


def test_the_update_from_consolidated_sums_is_the_update_of_one_cell(cells):
    core, first, second, _ = cells
    for cell in (core, first, second):
        cell.trainer.wake(V0)
    _share((core, first, second), BATCH)
    metrics = core.trainer.apply(_reduce((core, first, second), 4), 12, V1)
    reference = HostSnapshotStore()
    lonely = create_trainer(config(core.kind), vocab_size=VOCAB, store=reference)
    lonely.init(V0)
    lonely.wake(V0)
    for item in BATCH:
        lonely.accumulate(item)
    assert lonely.apply(lonely.sum(), 12, V1) == pytest.approx(metrics, rel=1e-4)


def test_the_timed_trainer_refuses_a_sum_that_counts_twice():
    store = HostSnapshotStore()
    trainer = create_trainer(config(TrainerKind.timed), vocab_size=VOCAB, store=store)
    trainer.init(V0)
    trainer.wake(V0)
    for _ in range(2):
        trainer.accumulate(BATCH[2])
    with pytest.raises(ValueError, match=r"micro-batch 2 is 2 times"):
        trainer.apply(trainer.sum(), 1, V1)
