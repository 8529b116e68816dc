"""Two buffers that a c10d pair sends from or receives into, turn by turn: one is copied while the other travels."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from gyre_hpc.transport.kv_base import Bytes
from gyre_hpc.transport.kv_blocks import PIECE_BYTES

SLOTS = 2


class Staging:
    """For pieces of up to PIECE_BYTES. nccl: pinned host memory beside memory of the current device."""

    def __init__(self, backend: str) -> None:
        self._is_device = backend == "nccl"
        self._pinned = [torch.empty(PIECE_BYTES, dtype=torch.uint8, pin_memory=self._is_device) for _ in range(SLOTS)]
        self._host: list[np.ndarray] = [buffer.numpy() for buffer in self._pinned]
        self._travels = self._pinned
        if self._is_device:
            self._travels = [torch.empty(PIECE_BYTES, dtype=torch.uint8, device="cuda") for _ in range(SLOTS)]

    def tensor(self, slot: int, count: int) -> Any:
        """What travels: uint8 [count], a view."""
        return self._travels[slot % SLOTS][:count]

    def fill(self, slot: int, piece: Sequence[Bytes]) -> int:
        """Copy `piece` in; returns its bytes. nccl: on the current stream, after what that waits for."""
        buffer, start = self._host[slot % SLOTS], 0
        for part in piece:
            buffer[start : start + part.size] = part
            start += part.size
        if self._is_device:
            self._travels[slot % SLOTS][:start].copy_(self._pinned[slot % SLOTS][:start])
        return start

    def arrived(self, slot: int, count: int) -> None:
        """Make what was received ready for `drain`. nccl: may block for as long as the receive takes."""
        if self._is_device:
            self._pinned[slot % SLOTS][:count].copy_(self._travels[slot % SLOTS][:count])

    def drain(self, slot: int, piece: Sequence[Bytes]) -> None:
        """Copy out into `piece`."""
        buffer, start = self._host[slot % SLOTS], 0
        for part in piece:
            part[:] = buffer[start : start + part.size]
            start += part.size
