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
from typing import Any

import numpy as np
import torch

from gyre_hpc.errors import TransferFailed
from gyre_hpc.transport.base import Groups
from gyre_hpc.transport.breakable import Breakable
from gyre_hpc.transport.c10d_pieces import Deadline, c10d, check_backend, group_over, join_store, open_store
from gyre_hpc.transport.proof import is_right, proof

_INNER_SHARE = 0.9
"""torch's own deadlines end a little before ours: its reason says more than "deadline passed"."""


class C10dGroups(Groups):
    """Kind `c10d`. `host`: address of this process's interface; `backend`: gloo or nccl."""

    def __init__(self, *, host: str, backend: str = "gloo") -> None:
        self._host = host
        self._backend = check_backend(backend)
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
                store = open_store(self._host)
                # Older generations are over: whoever still waits in their stores gets an error now.
                self._stores = {g: s for g, s in self._stores.items() if g > generation}
                self._stores[generation] = store
            return f"{self._host}:{store.port}"

    def reduce(self, generation: int, address: str, nonce: str, rank: int, world: int, tensor: Any, deadline_s: float) -> Any | None:
        scratch = _scratch(tensor)
        member = _Member(self._host, self._backend, generation, rank, world, Deadline(_INNER_SHARE * deadline_s))
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

    def __init__(self, host: str, backend: str, generation: int, rank: int, world: int, deadline: Deadline) -> None:
        self._host, self._backend, self._deadline = host, backend, deadline
        self._generation, self._rank, self._world = generation, rank, world

    def reduce(self, address: str, nonce: str, scratch: torch.Tensor, call: Breakable) -> None:
        """Sum `scratch` over the members into rank 0's. Raises whatever torch raises, TransferFailed on a wrong proof."""
        store = join_store(address, f"generation-{self._generation}", self._deadline.left())
        self._prove(store, nonce)
        if self._world > 1:
            with group_over(store, self._backend, self._host, self._rank, self._world, self._deadline.left()) as group:
                options = c10d.ReduceOptions()
                options.rootRank, options.timeout = 0, self._deadline.left()
                if call.broken:
                    return
                group.reduce([scratch], options).wait(self._deadline.left())
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
            store.wait([key], self._deadline.left())
        except c10d.DistError as error:
            raise TransferFailed(reason) from error


def _scratch(tensor: Any) -> torch.Tensor:
    if isinstance(tensor, np.ndarray):
        return torch.from_numpy(tensor.copy())
    scratch: torch.Tensor = tensor.detach().clone(memory_format=torch.contiguous_format)
    return scratch
