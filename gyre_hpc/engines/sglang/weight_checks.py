"""What is wrong with weights before they go, and with what the server says of them afterwards."""

from collections.abc import Mapping
from typing import Any

from gyre_hpc.engines.sglang.parts import ServerLost
from gyre_hpc.errors import UserError

_ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def item_bytes(dtype: str) -> int:
    """Of one weight on the server. Raises UserError on a type that it cannot be told by name."""
    if dtype not in _ITEM_BYTES:
        raise UserError("engine.sglang.dtype", dtype, f"use {', '.join(_ITEM_BYTES)}")
    return _ITEM_BYTES[dtype]


def check_whole(tensors: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raises ValueError unless `tensors` are exactly those of the model. SGLang itself keeps its old values for what is missing, passes
    over what it does not know, cuts off rows that are too many, and says that all is well."""
    for name, shape in shapes.items():
        if name not in tensors:
            raise ValueError(f"weights lack {name}")
        if tuple(tensors[name].shape) != shape:
            raise ValueError(f"{name} has shape {tuple(tensors[name].shape)}, the model's is {shape}")
    for name in tensors:
        if name not in shapes:
            raise ValueError(f"weights have {name}, which the model has not")


def check_success(path: str, answer: Any) -> None:
    """Raises ServerLost unless the answer says success in so many words: SGLang tells failures in the body."""
    if not isinstance(answer, dict) or answer.get("success") is not True:
        message = answer.get("message") if isinstance(answer, dict) else None
        raise ServerLost(f"{path}: {message or answer!r}")
