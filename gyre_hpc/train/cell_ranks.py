"""The ranks of one cell as data-parallel workers: who takes which sequence, and sums over the cell's own WORLD.

With one rank nothing here touches torch.distributed. With more, every rank must call the same methods in the same order
(train/base.py); the deadline is the WORLD's own.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist


class CellRanks:
    """rank of world. Parameters are equal on all ranks; gradients are shared out by sequence."""

    def __init__(self, rank: int, world: int) -> None:
        assert 0 <= rank < world
        self.rank = rank
        self.world = world

    def share(self, lengths: Sequence[int]) -> list[int]:
        """Indices of the sequences this rank computes, ascending: the longest first, each to the rank with the least
        tokens so far. Every rank computes the same division."""
        if self.world == 1:
            return list(range(len(lengths)))
        loads, mine = [0] * self.world, []
        for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
            rank = loads.index(min(loads))
            loads[rank] += lengths[index]
            if rank == self.rank:
                mine.append(index)
        return sorted(mine)

    def total(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum over the ranks, in a new tensor, equal on every rank."""
        total = tensor.clone()
        if self.world > 1:
            dist.all_reduce(total)
        return total

    def from_first(self, tensor: torch.Tensor) -> torch.Tensor:
        """Rank 0's tensor; on other ranks `tensor` is overwritten with it."""
        if self.world > 1:
            dist.broadcast(tensor, 0)
        return tensor

    def gather(self, row: torch.Tensor) -> torch.Tensor:
        """[n] of each rank -> [world, n] on every rank."""
        if self.world == 1:
            return row[None]
        rows = [torch.empty_like(row) for _ in range(self.world)]
        dist.all_gather(rows, row)
        return torch.stack(rows)
