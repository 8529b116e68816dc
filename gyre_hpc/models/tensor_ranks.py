"""The ranks that hold one model together, and the two collectives it takes: sums and gathers, each with a deadline.

A collective that fails (a rank is dead, or silent past the deadline) ends the group for good: CellLost.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d  # its options are not all declared as exported

from gyre_hpc.errors import CellLost

# torch's stubs leave out half of what is used here.
_dist: Any = dist
_c10d: Any = _distributed_c10d
_SUM, _MAX = _dist.ReduceOp.SUM, _dist.ReduceOp.MAX


class TensorRanks:
    """rank of size, over a process group (None: the default WORLD). Every rank calls the same methods in the same order."""

    def __init__(self, rank: int, size: int, group: Any = None, *, deadline_s: float = 60.0) -> None:
        assert 0 <= rank < size
        self.rank, self.size = rank, size
        self._group = _dist.group.WORLD if group is None else group
        self._deadline = timedelta(seconds=deadline_s)
        self._options: dict[Any, Any] = {op: self._timed(_c10d.AllreduceOptions()) for op in (_SUM, _MAX)}
        for op, options in self._options.items():
            options.reduceOp = op
        self._gathering = self._timed(_c10d.AllgatherOptions())

    def sum_(self, x: torch.Tensor) -> torch.Tensor:
        """x becomes the sum over the ranks, the same to the last bit on each."""
        return self._reduce_(x, _SUM)

    def max_(self, x: torch.Tensor) -> torch.Tensor:
        return self._reduce_(x, _MAX)

    def gather(self, x: torch.Tensor) -> torch.Tensor:
        """[...] of each rank -> [size, ...] on every rank; the same shape everywhere."""
        out = torch.empty((self.size, *x.shape), dtype=x.dtype)
        x = x.contiguous()
        self._wait(lambda: self._group.allgather([list(out.unbind(0))], [x], self._gathering))
        return out

    def send(self, x: torch.Tensor, rank: int) -> None:
        self._wait(lambda: self._group.send([x.contiguous()], rank, 0), rank)

    def receive_(self, x: torch.Tensor, rank: int, deadline_s: float | None = None) -> torch.Tensor:
        self._wait(lambda: self._group.recv([x], rank, 0), rank, deadline_s)
        return x

    def _reduce_(self, x: torch.Tensor, op: Any) -> torch.Tensor:
        self._wait(lambda: self._group.allreduce([x], self._options[op]))
        return x

    def _timed(self, options: Any) -> Any:
        options.timeout = self._deadline
        return options

    def _wait(self, begin: Callable[[], Any], peer: int | None = None, deadline_s: float | None = None) -> None:
        deadline = self._deadline if deadline_s is None else timedelta(seconds=deadline_s)
        try:
            begin().wait(deadline)
        except RuntimeError as error:
            raise self._lost(peer, deadline, error) from error

    def _lost(self, peer: int | None, deadline: timedelta, error: RuntimeError) -> CellLost:
        """Of two ranks it is the other one; of more, gloo does not say for whom it waited."""
        suspects = self.others() if peer is None else (peer,)
        names = f"rank {suspects[0]}" if len(suspects) == 1 else f"one of the ranks {', '.join(map(str, suspects))}"
        first_line = str(error).partition("\n")[0]
        return CellLost(f"{names} took no part within {deadline.total_seconds():g} s: {first_line}")

    def others(self) -> tuple[int, ...]:
        return tuple(rank for rank in range(self.size) if rank != self.rank)
