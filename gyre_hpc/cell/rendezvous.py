"""Where the parts of a cell meet: a rendezvous of torchrun with a world that is fixed before it begins.

torchrun's own kinds do not fit a cell. `c10d` numbers the nodes by their addresses and lets nodes come and go, by which everybody starts
again; `static` and every store that a rank opens listen on all interfaces of the machine. Ours takes part numbers as it is told them, and
has one store: part 0 opens it on the job's interface, agents and ranks of all parts use it, nobody comes later.

torch is imported when asked for: the agent alone does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from gyre_hpc.ports import listen

RENDEZVOUS = "gyre"
"""Name of the kind, for torchrun's --rdzv-backend."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One node's share of a cell: its agent and ranks."""

    number: int
    interface: str
    """Address of this node; the store of part 0 listens there."""
    deadline_s: float
    """Until all parts have come."""
    opened: Callable[[str], None]
    """Told host:port once the store listens; by part 0 of several."""


def open_store(part: Part) -> tuple[Any, str, int]:
    """(store, host, port) of part 0. Raises OSError."""
    from torch._C._distributed_c10d import TCPStore  # its public name is not declared as exported

    listener = listen(part.interface)
    listener.set_inheritable(False)
    port = int(listener.getsockname()[1])
    store = TCPStore(
        part.interface, port, is_master=True, timeout=timedelta(seconds=part.deadline_s), wait_for_workers=False, multi_tenant=True,
        master_listen_fd=listener.detach(),
    )  # fmt: skip
    return store, part.interface, port


def reach_store(part: Part, address: str) -> tuple[Any, str, int]:
    """(store, host, port) of the other parts. Raises DistNetworkError (a RuntimeError) after the deadline."""
    from torch._C._distributed_c10d import TCPStore

    host, _, port = address.rpartition(":")
    store = TCPStore(host, int(port), is_master=False, timeout=timedelta(seconds=part.deadline_s), wait_for_workers=False)
    return store, host, int(port)


def register_rendezvous(part: Part) -> None:
    """Make RENDEZVOUS known to torchrun in this process; --rdzv-endpoint names the store, for part 0 anything."""
    from torch._C._distributed_c10d import PrefixStore
    from torch.distributed.elastic.rendezvous import (
        RendezvousHandler,
        RendezvousInfo,
        RendezvousParameters,
        RendezvousStoreInfo,
        rendezvous_handler_registry,
    )

    class FixedRendezvous(RendezvousHandler):
        """Never closed, never joined late. Built once: a cell's ranks are not started again."""

        def __init__(self, params: RendezvousParameters) -> None:
            self._params = params

        def get_backend(self) -> str:
            return RENDEZVOUS

        @property
        def use_agent_store(self) -> bool:
            """So that no rank opens a store of its own."""
            return True

        def next_rendezvous(self) -> RendezvousInfo:
            store, host, port = open_store(part) if part.number == 0 else reach_store(part, self._params.endpoint)
            if part.number == 0 and self._params.max_nodes > 1:
                part.opened(f"{host}:{port}")
            agents = PrefixStore(f"agents/{self._params.run_id}", store)
            return RendezvousInfo(agents, part.number, self._params.max_nodes, RendezvousStoreInfo(host, port))

        def is_closed(self) -> bool:
            return False

        def set_closed(self) -> None:
            return

        def num_nodes_waiting(self) -> int:
            return 0

        def get_run_id(self) -> str:
            return self._params.run_id

        def shutdown(self) -> bool:
            return True

    rendezvous_handler_registry.register(RENDEZVOUS, FixedRendezvous)
