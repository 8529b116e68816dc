"""The ranks of one cell as a trainer: who computes what of a micro-batch, which parameters are where, and sums over the ranks.

    DataParallel    every rank has all parameters and takes a share of the sequences
    TensorParallel  every rank has a part of the parameters and takes all sequences (tensor_parallel_ranks.py)

A *whole* sum, gradient or snapshot is as a single rank would have it; an *own* one is what this rank has. With one rank
nothing here touches torch.distributed. With more, every rank must call the same methods in the same order (train/base.py), and
a collective whose deadline passes raises CellLost.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import torch

from gyre_hpc.models.parameters import parameter_shapes
from gyre_hpc.models.qwen3_config import Qwen3Config
from gyre_hpc.models.tensor_parallel import Joint
from gyre_hpc.models.tensor_ranks import TensorRanks


class CellRanks(ABC):
    """rank of world."""

    joint: Joint | None = None
    """For the forward; None: every rank computes by itself."""

    def __init__(self, ranks: TensorRanks | None, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """ranks: None for one rank."""
        self.ranks = ranks
        self.rank, self.world = (0, 1) if ranks is None else (ranks.rank, ranks.size)
        self.shapes = dict(shapes)
        """Of the own parameters, by name."""

    @abstractmethod
    def share(self, lengths: Sequence[int]) -> list[int]:
        """Indices of the sequences this rank computes, ascending."""

    @abstractmethod
    def own(self, whole: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """This rank's parts of whole parameters, or of anything of their names and shapes (moments)."""

    @abstractmethod
    def whole(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        """Own numbers [own parameters] of every rank, by name and whole."""

    @abstractmethod
    def total(self, flat: torch.Tensor) -> torch.Tensor:
        """Own sums [own parameters] -> the cell's sum [num_parameters], in a new tensor, equal on every rank."""

    @abstractmethod
    def own_of_first(self, whole: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
        """Rank 0's whole gradient [num_parameters] (None elsewhere) -> what this rank steps with [own parameters]."""

    @abstractmethod
    def addend_of_first(self, whole: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor | None:
        """Rank 0's whole sum -> what this rank has to add to its own, so that it counts once in the cell."""

    @abstractmethod
    def added_up(self, flat: torch.Tensor) -> torch.Tensor:
        """Own gradient of a share and some figures behind it, [own parameters + n] -> those of all shares."""

    @abstractmethod
    def norm(self, flat: torch.Tensor) -> float:
        """2-norm of own numbers [own parameters], every parameter of the model counted once."""

    @abstractmethod
    def sums(self, rows: torch.Tensor) -> torch.Tensor:
        """[world, n] figures of each rank -> [n] of the cell."""

    def gather(self, row: torch.Tensor) -> torch.Tensor:
        """[n] of each rank -> [world, n] on every rank."""
        return row[None] if self.ranks is None else self.ranks.gather(row)

    def agree(self, objection: str) -> None:
        """Raises ValueError on every rank when one objects, before anything is changed: a rank that raised alone would leave
        the others waiting."""
        objects = torch.tensor([float(bool(objection))])
        if bool(self.gather(objects).any()):
            raise ValueError(objection or "another rank of the cell refused")


class DataParallel(CellRanks):
    """Parameters are equal on all ranks; gradients are shared out by sequence."""

    def __init__(self, ranks: TensorRanks | None, model: Qwen3Config) -> None:
        super().__init__(ranks, parameter_shapes(model))

    def share(self, lengths: Sequence[int]) -> list[int]:
        """The longest first, each to the rank with the least tokens so far. Every rank computes the same division."""
        if self.world == 1:
            return list(range(len(lengths)))
        loads, mine = [0] * self.world, []
        for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
            rank = loads.index(min(loads))
            loads[rank] += lengths[index]
            if rank == self.rank:
                mine.append(index)
        return sorted(mine)

    def own(self, whole: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return dict(whole)

    def whole(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        sizes = [torch.Size(shape).numel() for shape in self.shapes.values()]
        return {name: part.view(self.shapes[name]) for name, part in zip(self.shapes, flat.split(sizes), strict=True)}

    def total(self, flat: torch.Tensor) -> torch.Tensor:
        total = flat.clone()
        return total if self.ranks is None else self.ranks.sum_(total)

    def own_of_first(self, whole: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
        if self.rank != 0:
            assert self.ranks is not None
            size = sum(torch.Size(shape).numel() for shape in self.shapes.values())
            return self.ranks.receive_(torch.empty(size, dtype=dtype), 0)
        assert whole is not None
        gradient = whole.to(dtype)
        if self.ranks is not None:
            for rank in self.ranks.others():
                self.ranks.send(gradient, rank)
        return gradient

    def addend_of_first(self, whole: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor | None:
        return whole if self.rank == 0 else None

    def added_up(self, flat: torch.Tensor) -> torch.Tensor:
        return self.total(flat)

    def norm(self, flat: torch.Tensor) -> float:
        return float(flat.norm())

    def sums(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.sum(0)
