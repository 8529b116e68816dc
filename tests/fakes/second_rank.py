"""A second rank in a process of its own, joined to the test's process by gloo: started once, used by many tests.

`get()` starts it at first and keeps it; after a test that breaks the ranks, `get().discard()` lets the next one start anew.
"""

import contextlib
import multiprocessing
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from gyre_hpc.models.tensor_ranks import TensorRanks

WORLD = 2
DEADLINE_S = 10.0


class SecondRank:
    """Rank 1. Methods of objects that are kept there are called; the calling process is rank 0 of the default WORLD."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        meeting = str(Path(self._folder.name) / "meeting")
        self._pipe, far = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(target=_serve, args=(far, meeting), daemon=True)
        self._process.start()
        far.close()
        _join(0, meeting)
        assert self._pipe.recv() == "joined"

    def make(self, key: int, module: str, function: str, *arguments: Any) -> None:
        """Keep what `module.function(*arguments)` returns there under `key`."""
        self.send("make", key, module, function, *arguments)
        self.hear()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def ask(self, *told: Any) -> Any:
        """For what the second rank does alone."""
        self.send(*told)
        return self.hear()

    def send(self, *told: Any) -> None:
        """(method, key, *arguments); the answer is `hear`d later, as both ranks have to act meanwhile."""
        self._pipe.send(told)

    def hear(self) -> Any:
        """The answer to what was sent; raises what it raised there."""
        assert self._pipe.poll(60), "the second rank does not answer"
        is_good, value = self._pipe.recv()
        if not is_good:
            raise value
        return value

    def discard(self) -> None:
        self._process.kill()
        self._process.join()
        dist.destroy_process_group()
        self._folder.cleanup()
        _current.clear()


_current: list[SecondRank] = []


def get() -> SecondRank:
    if not _current:
        _current.append(SecondRank())
    return _current[0]


def ranks(rank: int) -> TensorRanks:
    return TensorRanks(rank, WORLD, deadline_s=DEADLINE_S)


def _join(rank: int, meeting: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=WORLD)


def _serve(pipe: Connection, meeting: str) -> None:
    import importlib

    _join(1, meeting)
    pipe.send("joined")
    objects: dict[int, Any] = {}
    with contextlib.suppress(EOFError):
        while True:
            what, key, *arguments = pipe.recv()
            try:
                if what == "make":
                    module, function, *rest = arguments
                    objects[key], value = getattr(importlib.import_module(module), function)(*rest), None
                else:
                    value = getattr(objects[key], what)(*arguments)
                pipe.send((True, value))
            except Exception as error:  # noqa: BLE001 - rises in the test
                pipe.send((False, error))
