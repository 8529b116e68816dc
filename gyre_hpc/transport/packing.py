"""A snapshot as one flat block of host memory: what is pulled, checked and read.

Why flat: one allocation per snapshot, transfers cut it into equal chunks whatever the tensors' shapes (many small
tensors cost 15 % on loopback), and a reader gets views, never copies.

Invariants:
  - a packed snapshot shares no memory with the tensors it was packed from;
  - `unpack(pack(t))` gives tensors of the same kind, dtype, shape and bytes, as read-only views where the kind allows it;
  - torch is imported only when a torch tensor is met.
"""

import sys
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from gyre_hpc.transport.host_memory import HostMemory

_ALIGNMENT = 64
_TORCH_DTYPES = frozenset(
    [
        "float64",
        "float32",
        "float16",
        "bfloat16",
        "float8_e4m3fn",
        "float8_e5m2",
        "int64",
        "int32",
        "int16",
        "int8",
        "uint8",
        "bool",
        "complex64",
        "complex128",
    ]
)


class Entry(msgspec.Struct, frozen=True):
    """Where one tensor lies in the block."""

    name: str
    kind: str
    """`torch`, `numpy` or `bytes`."""
    dtype: str
    """torch: `float32`, `bfloat16`, ...; numpy: its `dtype.str`; bytes: empty."""
    shape: tuple[int, ...]
    offset: int
    size: int
    """Bytes."""


class Manifest(msgspec.Struct, frozen=True):
    """What a puller must know before it asks for chunks."""

    version: str
    entries: tuple[Entry, ...]
    size: int
    chunk_bytes: int
    """A stream of the block has a CRC-32 after so many bytes, and after the last ones."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Packed:
    """One snapshot: its layout, its memory, and the tensors as views of that memory."""

    entries: tuple[Entry, ...]
    block: np.ndarray
    """uint8 [size], never written again."""
    tensors: dict[str, Any]


def pack(tensors: dict[str, Any], memory: HostMemory) -> Packed:
    """Copy `tensors` (torch tensors, numpy arrays or bytes, by name) into one block of `memory`. Raises TypeError on others."""
    entries, offset = [], 0
    for name, value in tensors.items():
        kind, dtype, shape, size = _describe(name, value)
        entries.append(Entry(name, kind, dtype, shape, offset, size))
        offset += -(-size // _ALIGNMENT) * _ALIGNMENT
    block = memory.take(offset)
    for entry in entries:
        end = entry.offset + entry.size
        _copy_in(block[entry.offset : end], tensors[entry.name], entry)
        # What lies between is part of the content, too.
        block[end : -(-end // _ALIGNMENT) * _ALIGNMENT] = 0
    return from_block(tuple(entries), block)


def from_block(entries: tuple[Entry, ...], block: np.ndarray) -> Packed:
    """Views of `block` (uint8 [size]). Raises ValueError when an entry does not lie inside it."""
    for entry in entries:
        if entry.offset < 0 or entry.size < 0 or entry.offset + entry.size > block.size or entry.offset % _ALIGNMENT:
            raise ValueError(f"tensor {entry.name!r} lies outside its snapshot")
    tensors = {entry.name: _view(block[entry.offset : entry.offset + entry.size], entry) for entry in entries}
    block.flags.writeable = False
    return Packed(entries=entries, block=block, tensors=tensors)


def num_chunks(size: int, chunk_bytes: int) -> int:
    """Number of chunks of a block of `size` bytes."""
    return -(-size // chunk_bytes)


def _is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _describe(name: str, value: Any) -> tuple[str, str, tuple[int, ...], int]:
    if isinstance(value, bytes | bytearray | memoryview):
        return "bytes", "", (), memoryview(value).nbytes
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise TypeError(f"tensor {name!r} holds Python objects")
        return "numpy", value.dtype.str, value.shape, value.nbytes
    if _is_torch(value):
        return "torch", str(value.dtype).removeprefix("torch."), tuple(value.shape), value.numel() * value.element_size()
    raise TypeError(f"tensor {name!r} is a {type(value).__name__}; expected a torch tensor, a numpy array or bytes")


def _copy_in(target: np.ndarray, value: Any, entry: Entry) -> None:
    if not entry.size:
        return
    if entry.kind == "bytes":
        target[:] = np.frombuffer(value, dtype=np.uint8)
    elif entry.kind == "numpy":
        target.view(np.dtype(entry.dtype)).reshape(entry.shape)[...] = value
    else:
        _torch_view(target, entry).copy_(value.detach())


def _view(part: np.ndarray, entry: Entry) -> Any:
    if entry.kind == "bytes":
        return part.tobytes()
    if entry.kind == "numpy":
        array = part.view(np.dtype(entry.dtype)).reshape(entry.shape)
        array.flags.writeable = False
        return array
    if entry.kind == "torch":
        return _torch_view(part, entry)
    raise ValueError(f"tensor {entry.name!r} has unknown kind {entry.kind!r}")


def _torch_view(part: np.ndarray, entry: Entry) -> Any:
    import torch

    if entry.dtype not in _TORCH_DTYPES:
        raise ValueError(f"tensor {entry.name!r} has unknown dtype {entry.dtype!r}")
    dtype = getattr(torch, entry.dtype)
    if not entry.size:
        return torch.empty(entry.shape, dtype=dtype)
    return torch.from_numpy(part).view(dtype).view(entry.shape)
