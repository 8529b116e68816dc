import gc

import numpy as np
import pytest
import torch

from gyre_hpc.transport.host_memory import HostMemory


def _address(block: np.ndarray) -> int:
    return block.__array_interface__["data"][0]


def test_memory_is_used_again_once_nobody_refers_to_it():
    memory = HostMemory()
    block = memory.take(1 << 16)
    address = _address(block)
    del block
    assert _address(memory.take(1 << 16)) == address


@pytest.mark.parametrize(
    "view", [lambda b: b[10:20], lambda b: b[:64].view(np.float32), lambda b: torch.from_numpy(b[:64]), lambda b: b.data]
)
def test_memory_under_a_view_is_not_given_out(view):
    memory = HostMemory()
    block = memory.take(1 << 16)
    address, kept = _address(block), view(block)
    del block
    gc.collect()
    other = memory.take(1 << 16)
    assert _address(other) != address
    del kept, other


def test_memory_of_another_size_is_new():
    memory = HostMemory()
    memory.take(1 << 16)
    assert memory.take(1 << 17).size == 1 << 17
    assert memory.take(0).size == 0
