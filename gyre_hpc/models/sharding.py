"""Which part of a decoder's parameters each rank of a tensor-parallel cell holds: pure rules by Hugging Face name.

    column      rows of the matrix (its outputs): q, k, v by heads, gate, up      [out / size, in]
    row         columns of the matrix (its inputs): o, down                       [out, in / size]
    vocabulary  rows of embedding and output matrix; the first ranks have one more where it does not divide
    replicated  norms: every rank has all of it

A product of column and then row matrices needs one sum over the ranks (Megatron-LM, arXiv 1909.08053). Query heads lie
beside the key heads they use, so a rank's part is a decoder of fewer heads by itself.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from gyre_hpc.errors import UserError
from gyre_hpc.models.parameters import Parameters, parameter_shapes
from gyre_hpc.models.qwen3_config import Qwen3Config


class Split(enum.Enum):
    column = "column"
    row = "row"
    vocabulary = "vocabulary"
    replicated = "replicated"


_SPLITS = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"), Split.column),
    **dict.fromkeys(("o_proj", "down_proj"), Split.row),
    **dict.fromkeys(("embed_tokens", "lm_head"), Split.vocabulary),
}


def split_of(name: str) -> Split:
    """How the parameter `name` (`model.layers.0.mlp.up_proj.weight`) is divided."""
    return _SPLITS.get(name.split(".")[-2:][0], Split.replicated)


def bounds(length: int, rank: int, size: int) -> tuple[int, int]:
    """[start, end) of a rank's part of `length` things; parts differ by one at most, larger ones first."""
    base, rest = divmod(length, size)
    start = rank * base + min(rank, rest)
    return start, start + base + (rank < rest)


def check_divides(config: Qwen3Config, size: int) -> None:
    """Raises UserError when `size` ranks cannot share the model."""
    for name in ("num_heads", "num_kv_heads", "intermediate_size"):
        value = getattr(config, name)
        if value % size:
            raise UserError(
                f"model.{name}", value, f"make it a multiple of the {size} ranks that share a model, or lower cluster.tensor_parallel"
            )
    if config.vocab_size < size:
        raise UserError("model.vocab_size", config.vocab_size, f"make it at least the {size} ranks that share a model")


@dataclass(frozen=True, kw_only=True, slots=True)
class Shard:
    """Part `rank` of `size` of the model `config`. Raises UserError when that does not divide."""

    config: Qwen3Config
    rank: int
    size: int

    def __post_init__(self) -> None:
        assert 0 <= self.rank < self.size
        check_divides(self.config, self.size)

    @property
    def own(self) -> Qwen3Config:
        """The decoder that this part is by itself; its vocabulary is the whole one."""
        c, size = self.config, self.size
        return replace(c, num_heads=c.num_heads // size, num_kv_heads=c.num_kv_heads // size, intermediate_size=c.intermediate_size // size)

    @property
    def vocabulary(self) -> tuple[int, int]:
        """[first, end) of the token ids whose rows are here."""
        return bounds(self.config.vocab_size, self.rank, self.size)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the parts, by name, in the order of `parameter_shapes`."""
        return {name: _part(name, shape, self.rank, self.size) for name, shape in parameter_shapes(self.config).items()}

    def of(self, whole: Mapping[str, torch.Tensor]) -> Parameters:
        """This rank's parts as views of the whole parameters (or anything of their shapes: gradients, moments)."""
        return {name: slice_of(name, tensor, self.rank, self.size) for name, tensor in whole.items()}


def slice_of(name: str, whole: torch.Tensor, rank: int, size: int) -> torch.Tensor:
    """A rank's part, a view."""
    dim = _dim(name)
    if dim is None:
        return whole
    start, end = bounds(whole.shape[dim], rank, size)
    return whole.narrow(dim, start, end - start)


def join(name: str, parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Inverse of slice_of, from the parts of all ranks in rank order."""
    dim = _dim(name)
    return parts[0] if dim is None else torch.cat(tuple(parts), dim)


def _dim(name: str) -> int | None:
    """The dimension along which `name` is divided; None: it is not."""
    return {Split.column: 0, Split.vocabulary: 0, Split.row: 1, Split.replicated: None}[split_of(name)]


def _part(name: str, shape: tuple[int, ...], rank: int, size: int) -> tuple[int, ...]:
    dim = _dim(name)
    if dim is None:
        return shape
    start, end = bounds(shape[dim], rank, size)
    return (*shape[:dim], end - start, *shape[dim + 1 :])
