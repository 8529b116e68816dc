"""A trainer whose ranks hold one model together: each has its part of parameters, sum and moments, and sees every sequence.

What leaves the cell is whole: sums, snapshots and checkpoints are those of one rank, so cells of any number of ranks work
together and a checkpoint is loaded by any other number.
"""

from collections.abc import Mapping, Sequence

import torch

from gyre_hpc.models.parameters import parameter_shapes
from gyre_hpc.models.qwen3_config import Qwen3Config
from gyre_hpc.models.sharding import Shard, Split, join, slice_of, split_of
from gyre_hpc.models.tensor_parallel import Joint
from gyre_hpc.models.tensor_ranks import TensorRanks
from gyre_hpc.train.cell_ranks import CellRanks


def _size(shape: Sequence[int]) -> int:
    return torch.Size(shape).numel()


class TensorParallel(CellRanks):
    """Raises UserError when the model does not divide by the ranks."""

    def __init__(self, model: Qwen3Config, ranks: TensorRanks) -> None:
        shards = [Shard(config=model, rank=rank, size=ranks.size) for rank in range(ranks.size)]
        super().__init__(ranks, shards[ranks.rank].shapes())
        self._ranks = ranks
        self.joint = Joint(ranks, shards[ranks.rank].vocabulary)
        self._shapes_of = [shard.shapes() for shard in shards]
        self._whole_shapes = parameter_shapes(model)
        self._sizes = [sum(map(_size, shapes.values())) for shapes in self._shapes_of]
        self._counts = self._counted_here()

    def share(self, lengths: Sequence[int]) -> list[int]:
        return list(range(len(lengths)))

    def own(self, whole: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: slice_of(name, tensor, self.rank, self.world) for name, tensor in whole.items()}

    def whole(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        padded = flat.new_zeros(max(self._sizes))
        padded[: len(flat)] = flat
        parts = [_split(row, shapes) for row, shapes in zip(self._ranks.gather(padded), self._shapes_of, strict=True)]
        return {name: join(name, [part[name] for part in parts]) for name in self.shapes}

    def total(self, flat: torch.Tensor) -> torch.Tensor:
        return torch.cat([tensor.reshape(-1) for tensor in self.whole(flat).values()])

    def own_of_first(self, whole: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
        if self.rank != 0:
            return self._ranks.receive_(torch.empty(self._sizes[self.rank], dtype=dtype), 0)
        assert whole is not None
        named = _split(whole.to(dtype), self._whole_shapes)
        for rank in self._ranks.others():
            self._ranks.send(self._part(named, rank), rank)
        return self._part(named, 0)

    def addend_of_first(self, whole: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor | None:
        return self.own_of_first(whole, dtype)

    def added_up(self, flat: torch.Tensor) -> torch.Tensor:
        """Every rank has seen every sequence."""
        return flat

    def norm(self, flat: torch.Tensor) -> float:
        return float(self._ranks.sum_((flat * self._counts).square().sum(dtype=torch.float64)).sqrt())

    def sums(self, rows: torch.Tensor) -> torch.Tensor:
        return rows[0]

    def _part(self, named: Mapping[str, torch.Tensor], rank: int) -> torch.Tensor:
        return torch.cat([slice_of(name, tensor, rank, self.world).reshape(-1) for name, tensor in named.items()])

    def _counted_here(self) -> torch.Tensor:
        """[own parameters]: 1, but 0 for what rank 0 has as well."""
        parts = [
            torch.full((_size(shape),), float(self.rank == 0 or split_of(name) is not Split.replicated))
            for name, shape in self.shapes.items()
        ]
        return torch.cat(parts)


def _split(flat: torch.Tensor, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    """Views by name of the beginning of `flat`."""
    views, start = {}, 0
    for name, shape in shapes.items():
        views[name] = flat[start : start + _size(shape)].view(shape)
        start += _size(shape)
    return views
