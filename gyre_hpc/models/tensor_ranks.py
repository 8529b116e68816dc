"""The ranks that hold one model together, and the two collectives it takes: sums and gathers, each with a deadline.

A collective that fails (a rank is dead, or silent past the deadline) ends the group for good: CellLost.
"""

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from gyre_hpc.errors import CellLost

# torch's stubs leave out half of what is used here.
_dist: Any = dist


class TensorRanks:
    """rank of size, over a process group (None: the default WORLD). Every rank calls the same methods in the same order."""

    def __init__(self, rank: int, size: int, group: Any = None, *, deadline_s: float = 60.0) -> None:
        assert 0 <= rank < size
        self.rank, self.size, self.group = rank, size, group
        self._deadline = timedelta(seconds=deadline_s)

    def sum_(self, x: torch.Tensor) -> torch.Tensor:
        """x becomes the sum over the ranks, the same to the last bit on each."""
        return self._reduce_(x, dist.ReduceOp.SUM)

    def max_(self, x: torch.Tensor) -> torch.Tensor:
        return self._reduce_(x, dist.ReduceOp.MAX)

    def gather(self, x: torch.Tensor) -> torch.Tensor:
        """[...] of each rank -> [size, ...] on every rank; the same shape everywhere."""
        out = torch.empty((self.size, *x.shape), dtype=x.dtype)
        x = x.contiguous()
        self._wait(lambda: _dist.all_gather(list(out.unbind(0)), x, group=self.group, async_op=True))
        return out

    def send(self, x: torch.Tensor, rank: int) -> None:
        self._wait(lambda: _dist.isend(x.contiguous(), rank, group=self.group), (rank,))

    def receive_(self, x: torch.Tensor, rank: int) -> torch.Tensor:
        self._wait(lambda: _dist.irecv(x, rank, group=self.group), (rank,))
        return x

    def _reduce_(self, x: torch.Tensor, op: Any) -> torch.Tensor:
        self._wait(lambda: _dist.all_reduce(x, op, group=self.group, async_op=True))
        return x

    def _wait(self, begin: Any, suspects: tuple[int, ...] = ()) -> None:
        try:
            begin().wait(self._deadline)
        except RuntimeError as error:
            raise lost(suspects or self.others(), self._deadline.total_seconds(), error) from error

    def others(self) -> tuple[int, ...]:
        return tuple(rank for rank in range(self.size) if rank != self.rank)


def lost(ranks: tuple[int, ...], deadline_s: float, error: RuntimeError) -> CellLost:
    """Of two ranks the other one; of more, whom gloo waited for it does not say."""
    names = f"rank {ranks[0]}" if len(ranks) == 1 else f"one of the ranks {', '.join(map(str, ranks))}"
    first_line = str(error).partition("\n")[0]
    return CellLost(f"{names} took no part within {deadline_s:g} s: {first_line}")
