"""The two pieces of torch that meetings between cells are made of: a store on one interface, and a group over it.

torch's stubs leave out half of what is used here.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch.distributed

from gyre_hpc.clock import monotonic_s
from gyre_hpc.errors import TransferFailed, UserError
from gyre_hpc.ports import listen

c10d: Any = torch.distributed
_HOST_TIMEOUT_S = 30.0


class Deadline:
    """A moment of the monotonic clock, asked for as what is left of it."""

    def __init__(self, seconds: float) -> None:
        self.until = monotonic_s() + seconds

    def left(self) -> timedelta:
        """Raises TransferFailed when it has passed."""
        left = self.until - monotonic_s()
        if left <= 0:
            raise TransferFailed("deadline passed")
        return timedelta(seconds=max(left, 0.001))


def check_backend(backend: str) -> str:
    """Raises UserError."""
    if backend not in ("gloo", "nccl"):
        raise UserError("transport.backend", backend, "use gloo or nccl")
    return backend


def open_store(host: str) -> Any:
    """A TCPStore on a free port of `host` alone: by itself it would listen on every interface."""
    listener = listen(host)
    port = listener.getsockname()[1]
    return c10d.TCPStore(
        host,
        port,
        None,
        True,
        timedelta(seconds=_HOST_TIMEOUT_S),
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )


def join_store(address: str, prefix: str, timeout: timedelta) -> Any:
    """A client of the store at `address` (host:port) that sees `prefix` alone. Raises what torch raises."""
    host, _, port = address.rpartition(":")
    return c10d.PrefixStore(prefix, c10d.TCPStore(host, int(port), None, False, timeout, wait_for_workers=False))


def new_group(store: Any, backend: str, host: str, rank: int, world: int, timeout: timedelta) -> Any:
    """A process group of our own, unknown to torch.distributed; whoever made it aborts it. Raises what torch raises."""
    if backend == "gloo":
        options = c10d.ProcessGroupGloo._Options()
        options._timeout = timeout
        options._devices = [c10d.ProcessGroupGloo.create_device(hostname=host)]
        return c10d.ProcessGroupGloo(store, rank, world, options)
    nccl = c10d.ProcessGroupNCCL.Options()
    nccl._timeout = timeout
    return c10d.ProcessGroupNCCL(store, rank, world, nccl)


@contextmanager
def group_over(store: Any, backend: str, host: str, rank: int, world: int, timeout: timedelta) -> Iterator[Any]:
    """The same, aborted at the end of the block."""
    group = new_group(store, backend, host, rank, world, timeout)
    try:
        yield group
    finally:
        group.abort()
