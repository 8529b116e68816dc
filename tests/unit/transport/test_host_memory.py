import gc
import sys
import threading
import time

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


def test_other_threads_go_on_while_memory_is_made():
    turns, there, over = [0], threading.Event(), threading.Event()

    def go_on() -> None:
        while not over.is_set():
            turns[0] += 1
            there.set()
            time.sleep(0)  # lets go of the interpreter's lock

    thread, interval = threading.Thread(target=go_on), sys.getswitchinterval()
    thread.start()
    there.wait()
    # From here on the lock is only given away, never taken.
    sys.setswitchinterval(1000.0)
    try:
        before = turns[0]
        block = HostMemory().take(256 << 20)
        after = turns[0]
    finally:
        sys.setswitchinterval(interval)
        over.set()
        thread.join()
    assert block.size == 256 << 20 and after > before
