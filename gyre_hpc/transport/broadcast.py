"""Tensors from here to an inference server's ranks: a process group of our own, in which this process is rank 0.

The server forms its end with torch's own helper for further groups, which puts the group's name, the name and a slash, and the
device in front of every key of the store; so does this end. Nothing is registered in torch.distributed.

Backend `gloo` is tested, from host memory; its other ends may lie on GPUs. `nccl` takes the same path and is untested. NCCL refuses
two ranks on one GPU unless both processes have NCCL_MULTI_RANK_GPU_ENABLE=1 in their environment and a release that knows it.

Invariants:
  - a blocking call ends within its deadline, or at `close` from another thread, with TransferFailed and the reason; `close` never waits;
  - other ranks that wait in a group which is closed here get an error: of gloo when this end's call has run out, at the latest at its
    deadline (gloo cannot break a collective off; its connections close with it), of nccl by their own timeout.
"""

import secrets
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any

import torch

from gyre_hpc.errors import TransferFailed
from gyre_hpc.transport.breakable import Breakable
from gyre_hpc.transport.c10d_pieces import Deadline, c10d, check_backend, new_group, open_store

_INNER_SHARE = 0.9
"""torch's own deadlines end a little before ours: its reason says more than "deadline passed"."""
_WATCHDOG_SPARE_S = 60.0
"""nccl's watchdog ends the process of a collective that is over its time; ours is broken off before."""


class BroadcastGroup:
    """One group, used from `join` to `close`. `host`: where the other ranks reach this process; `num_members`: those other ranks;
    `device`: where nccl sends from (gloo sends from host memory); `longest_s`: no call's deadline is longer."""

    def __init__(self, *, host: str, backend: str, device: str, num_members: int, longest_s: float) -> None:
        self.backend = check_backend(backend)
        self.name = f"weights-{secrets.token_hex(8)}"
        """New for every group: the old never meets the new, and a stranger cannot guess it."""
        self.num_members = num_members
        self._host = host
        self._device = torch.device(device if backend == "nccl" else "cpu")
        self._longest_s = longest_s
        self._store = open_store(host)
        self.port = int(self._store.port)
        self._lock = threading.Lock()
        self._running: Breakable | None = None
        self._group: Any = None
        self._is_closed = False

    def join(self, deadline_s: float) -> None:
        """Meet the other ranks; they come at the same time. Blocks. Raises TransferFailed."""

        def meet(call: Breakable) -> None:
            group = self._new_group(deadline_s)
            with self._lock:
                # Whoever closed meanwhile did not see this group.
                if not (self._is_closed or call.broken):
                    self._group = group
                    return
            group.abort()

        self._run(meet, f"meeting {self.num_members} ranks", deadline_s)

    def send(self, tensors: Sequence[Any], dtype: str, deadline_s: float) -> None:
        """Broadcast copies of `tensors` in `dtype` (torch's name), one after the other in this order. They are only read. Blocks until
        they have left. Raises TransferFailed."""
        deadline = Deadline(_INNER_SHARE * deadline_s)

        def broadcast(call: Breakable) -> None:
            try:
                self._broadcast(tensors, getattr(torch, dtype), deadline)
            except Exception as error:
                # Its frames hold the group, and with it the connections that others wait on.
                traceback.clear_frames(error.__traceback__)
                raise

        self._run(broadcast, f"sending {len(tensors)} tensors", deadline_s)

    def close(self) -> None:
        """From any thread; whoever waits in a call gets TransferFailed."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            running, group, self._group, self._store = self._running, self._group, None, None
        if running is not None:
            running.abort("the group was closed")
        if group is not None:
            group.abort()

    def _run(self, work: Callable[[Breakable], None], what: str, deadline_s: float) -> None:
        call = Breakable(work, what)
        with self._lock:
            if self._is_closed:
                raise TransferFailed(f"{what}: the group was closed")
            self._running = call
        try:
            call.run(deadline_s)
        finally:
            self._running = None

    def _broadcast(self, tensors: Sequence[Any], dtype: torch.dtype, deadline: Deadline) -> None:
        # Held to the end: a gloo group is destroyed by whoever lets go of it last, who then waits for its collectives. Not `close`.
        group = self._joined()
        options = c10d.BroadcastOptions()
        options.rootRank, options.rootTensor, options.timeout = 0, 0, deadline.left()
        with self._on_device():
            ready = [tensor.detach().to(device=self._device, dtype=dtype).contiguous() for tensor in tensors]
            works = [group.broadcast([tensor], options) for tensor in ready]
            for work in works:
                work.wait(deadline.left())

    def _joined(self) -> Any:
        with self._lock:
            if self._group is None:
                raise TransferFailed("the group was closed, or never joined")
            return self._group

    def _new_group(self, deadline_s: float) -> Any:
        store = self._store
        if store is None:
            raise TransferFailed("the group was closed")
        for prefix in (self.name, f"{self.name}/", f"{self._device.type}/"):
            store = c10d.PrefixStore(prefix, store)
        timeout_s = self._longest_s + _WATCHDOG_SPARE_S if self.backend == "nccl" else _INNER_SHARE * deadline_s
        with self._on_device():
            return new_group(store, self.backend, self._host, 0, 1 + self.num_members, timedelta(seconds=timeout_s))

    def _on_device(self) -> AbstractContextManager[Any]:
        return torch.cuda.device(self._device) if self._device.type == "cuda" else nullcontext()
