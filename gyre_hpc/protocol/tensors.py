"""Arrays on the wire: little-endian bytes, so that no list of a million ints is ever parsed."""

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]


def pack_ids(ids: npt.ArrayLike) -> bytes:
    """int32 [T] -> bytes."""
    return np.ascontiguousarray(ids, dtype="<i4").tobytes()


def unpack_ids(data: bytes) -> Ids:
    """bytes -> int32 [T], read-only view."""
    return np.frombuffer(data, dtype="<i4")


def pack_floats(values: npt.ArrayLike) -> bytes:
    """float32 [T] -> bytes."""
    return np.ascontiguousarray(values, dtype="<f4").tobytes()


def unpack_floats(data: bytes) -> Floats:
    """bytes -> float32 [T], read-only view."""
    return np.frombuffer(data, dtype="<f4")
