"""One rank of a cell in a process of its own: trains a given split of sequences, writes what came out."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist

from gyre_hpc.protocol.identity import Version
from gyre_hpc.train import create_trainer
from gyre_hpc.transport.snapshot_store import HostSnapshotStore
from tests.contracts.training_data import VOCAB, config, micro_batch, sequence


def run(rank: int, world: int, lengths: list[int], tensor_parallel: int) -> dict:
    """Everything a cell does once: accumulate, add a hand-in, apply, fit."""
    store = HostSnapshotStore()
    told = config()
    told.cluster.tensor_parallel, told.model.num_kv_heads = tensor_parallel, 2
    trainer = create_trainer(told, vocab_size=VOCAB, store=store, rank=rank, world=world)
    trainer.init(Version(0, 0))
    trainer.wake(Version(0, 0))
    sequences = [sequence(length, seed) for seed, length in enumerate(lengths)]
    facts = [trainer.accumulate(micro_batch(*sequences, id="0:0")), trainer.accumulate(micro_batch(sequences[0], id="0:1"))]
    total = trainer.sum().clone()
    trainer.add_sum(torch.ones_like(total))
    with_hand_in = trainer.sum().clone()
    # The reduced total of a commit reaches rank 0 alone.
    metrics = trainer.apply(with_hand_in if rank == 0 else None, 3, Version(0, 1))
    updated = torch.cat([tensor.flatten() for tensor in store.get(Version(0, 1)).values()])
    data = [micro_batch(*sequences, id="warm:0", loss="cross_entropy", version=Version(0, 1))]
    fitted = trainer.fit(data, 2, Version(0, 2), lambda share: None)
    warm = torch.cat([tensor.flatten() for tensor in store.get(Version(0, 2)).values()])
    return {
        "sum": total,
        "with_hand_in": with_hand_in,
        "updated": updated,
        "warm": warm,
        "metrics": metrics,
        "fitted": fitted,
        "facts": [(f.num_targets, f.num_on_policy, f.loss_sum, f.clipped, f.max_logprob_gap) for f in facts],
    }


def main(rank: int, world: int, meeting: str, lengths: list[int], out: str) -> None:
    """Once for ranks that share the sequences, once for ranks that share the model."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
    torch.save({tensor_parallel: run(rank, world, lengths, tensor_parallel) for tensor_parallel in (1, 0)}, Path(out))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], [int(n) for n in sys.argv[4].split(",")], sys.argv[5])
