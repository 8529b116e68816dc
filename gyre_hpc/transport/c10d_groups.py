"""Process groups between cells on torch's own pieces: one TCPStore and one ProcessGroup per generation.

The core hosts the store on a free port of its interface. A reduce joins, proves the nonce, reduces a copy to rank 0,
waits until rank 0 has it, and leaves. Nothing is registered in torch.distributed: the cell's own WORLD never notices.

Backend `gloo` is tested; `nccl` takes the same path and is untested (it needs GPUs).

Invariants:
  - the tensor that is passed in is never written to, whatever happens;
  - nobody joins a group before every member has proved the nonce;
  - a member returns normally only if rank 0 has the whole sum;
  - a call ends within its deadline, with TransferFailed and the reason, when a peer is dead, absent or silent.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed

from gyre_hpc.clock import monotonic_s
from gyre_hpc.errors import TransferFailed, UserError
from gyre_hpc.ports import listen
from gyre_hpc.transport.base import Groups
from gyre_hpc.transport.breakable import Breakable
from gyre_hpc.transport.proof import is_right, proof

# torch's stubs leave out half of what is used here.
_c10d: Any = torch.distributed
_HOST_TIMEOUT_S = 30.0
_INNER_SHARE = 0.9
"""torch's own deadlines end a little before ours: its reason says more than "deadline passed"."""


class C10dGroups(Groups):
    """Kind `c10d`. `host`: address of this process's interface; `backend`: gloo or nccl."""

    def __init__(self, *, host: str, backend: str = "gloo") -> None:
        if backend not in ("gloo", "nccl"):
            raise UserError("transport.backend", backend, "use gloo or nccl")
        self._host = host
        self._backend = backend
        self._lock = threading.Lock()
        self._stores: dict[int, Any] = {}
        self._running: dict[int, list[Breakable]] = {}
        self._aborted: set[int] = set()

    def host(self, generation: int, nonce: str) -> str:
        if not nonce:
            raise ValueError("nonce is empty")
        with self._lock:
            self._refuse_aborted(generation)
            store = self._stores.get(generation)
            if store is None:
                store = _open_store(self._host)
                # Older generations are over: whoever still waits in their stores gets an error now.
                self._stores = {g: s for g, s in self._stores.items() if g > generation}
                self._stores[generation] = store
            return f"{self._host}:{store.port}"

    def reduce(self, generation: int, address: str, nonce: str, rank: int, world: int, tensor: Any, deadline_s: float) -> Any | None:
        scratch = _scratch(tensor)
        until = monotonic_s() + _INNER_SHARE * deadline_s
        member = _Member(self._host, self._backend, generation, rank, world, until)
        call = Breakable(lambda call: member.reduce(address, nonce, scratch, call), f"reduce of generation {generation}, rank {rank}")
        with self._lock:
            # An abort may overtake the reduce it is meant for.
            self._refuse_aborted(generation)
            self._running.setdefault(generation, []).append(call)
        try:
            call.run(deadline_s)
        finally:
            with self._lock:
                self._running[generation].remove(call)
        if rank != 0:
            return None
        return scratch.numpy() if isinstance(tensor, np.ndarray) else scratch

    def abort(self, generation: int) -> None:
        with self._lock:
            self._aborted.add(generation)
            self._stores.pop(generation, None)
            running = list(self._running.get(generation, ()))
        for call in running:
            call.abort("aborted")

    def close(self) -> None:
        with self._lock:
            generations = [*self._stores, *self._running]
        for generation in generations:
            self.abort(generation)

    def _refuse_aborted(self, generation: int) -> None:
        if generation in self._aborted:
            raise TransferFailed(f"generation {generation} was aborted")


class _Member:
    """One rank of one generation."""

    def __init__(self, host: str, backend: str, generation: int, rank: int, world: int, until: float) -> None:
        self._host, self._backend, self._until = host, backend, until
        self._generation, self._rank, self._world = generation, rank, world

    def reduce(self, address: str, nonce: str, scratch: torch.Tensor, call: Breakable) -> None:
        """Sum `scratch` over the members into rank 0's. Raises whatever torch raises, TransferFailed on a wrong proof."""
        host, _, port = address.rpartition(":")
        meeting = _c10d.TCPStore(host, int(port), None, False, self._left(), wait_for_workers=False)
        store = _c10d.PrefixStore(f"generation-{self._generation}", meeting)
        self._prove(store, nonce)
        if self._world > 1:
            with self._group(store) as group:
                options = _c10d.ReduceOptions()
                options.rootRank, options.timeout = 0, self._left()
                if call.broken:
                    return
                group.reduce([scratch], options).wait(self._left())
                self._confirm(store)

    def _prove(self, store: Any, nonce: str) -> None:
        store.set(f"proof/{self._rank}", proof(nonce, self._generation, self._rank, self._world))
        for rank in range(self._world):
            self._wait(store, f"proof/{rank}", f"rank {rank} of {self._world} did not come")
            if not is_right(store.get(f"proof/{rank}").decode(errors="replace"), nonce, self._generation, rank, self._world):
                raise TransferFailed(f"rank {rank} of {self._world} shows a wrong nonce")

    def _confirm(self, store: Any) -> None:
        """Nobody reports success, nor closes its connections, before rank 0 has the sum."""
        if self._rank == 0:
            store.set("reduced", "")
        else:
            self._wait(store, "reduced", "rank 0 did not confirm the sum")

    def _wait(self, store: Any, key: str, reason: str) -> None:
        try:
            store.wait([key], self._left())
        except _c10d.DistError as error:
            raise TransferFailed(reason) from error

    @contextmanager
    def _group(self, store: Any) -> Iterator[Any]:
        if self._backend == "gloo":
            options = _c10d.ProcessGroupGloo._Options()
            options._timeout = self._left()
            options._devices = [_c10d.ProcessGroupGloo.create_device(hostname=self._host)]
            group: Any = _c10d.ProcessGroupGloo(store, self._rank, self._world, options)
        else:
            nccl = _c10d.ProcessGroupNCCL.Options()
            nccl._timeout = self._left()
            group = _c10d.ProcessGroupNCCL(store, self._rank, self._world, nccl)
        try:
            yield group
        finally:
            group.abort()

    def _left(self) -> timedelta:
        left = self._until - monotonic_s()
        if left <= 0:
            raise TransferFailed("deadline passed")
        return timedelta(seconds=max(left, 0.001))


def _open_store(host: str) -> Any:
    """A TCPStore on a free port of `host` alone: by itself it would listen on every interface."""
    listener = listen(host)
    port = listener.getsockname()[1]
    return _c10d.TCPStore(
        host,
        port,
        None,
        True,
        timedelta(seconds=_HOST_TIMEOUT_S),
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )


def _scratch(tensor: Any) -> torch.Tensor:
    if isinstance(tensor, np.ndarray):
        return torch.from_numpy(tensor.copy())
    scratch: torch.Tensor = tensor.detach().clone(memory_format=torch.contiguous_format)
    return scratch
