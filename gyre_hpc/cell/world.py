"""The cell's own default WORLD: gloo over the ranks that torchrun started, built once and never again. Where they hold one
model together, the engine has a second group over the same ranks, since it computes in a thread of its own.

The only torch of this room outside the backends, imported when a cell has more than one rank.
"""

import sys
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from gyre_hpc.errors import CellLost

if TYPE_CHECKING:
    from gyre_hpc.models.tensor_ranks import TensorRanks

IDLE_DEADLINE_S = 1800.0
"""Longest a rank waits for a command or in a collective. The leader looks at its ranks all the time, so this ends orphans."""
BOUND_GLOO = "gyre_gloo"
"""gloo on the job's interface, for torch's own groups. torch 2.13 drops the options of those that it makes as `gloo`: they listen where the
host's name leads, or on loopback, where no other node reaches them."""


class Channel(Protocol):
    """Bytes between the leader (rank 0) and each follower. Raises CellLost; after that the peer is lost for good."""

    def send(self, rank: int, data: bytes, deadline_s: float) -> None: ...

    def receive(self, rank: int, deadline_s: float) -> bytes: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """A cell of several ranks, as one of them sees it."""

    channel: Channel
    engine: "TensorRanks | None"
    """The ranks of an engine that share a model; None: the first rank serves alone."""


def join_world(interface: str, *, rank: int, world: int, engine_deadline_s: float | None) -> World:
    """Build all groups of the cell from torchrun's environment, bound to `interface`, in the same order on every rank.

    engine_deadline_s: of one collective of the engine, in which all ranks meet at once; None: the ranks share no engine.
    """
    import torch.distributed

    from gyre_hpc.models.tensor_ranks import TensorRanks
    from gyre_hpc.transport.c10d_pieces import new_group

    # torch's stubs leave out half of what is used here.
    dist: Any = torch.distributed

    def create(store: Any, rank: int, size: int, deadline: timedelta) -> Any:
        return new_group(store, "gloo", interface, rank, size, deadline)

    dist.Backend.register_backend(BOUND_GLOO, create, devices=["cpu"])
    dist.init_process_group(BOUND_GLOO, timeout=timedelta(seconds=IDLE_DEADLINE_S))
    engine = None
    if engine_deadline_s is not None:
        group = dist.new_group(backend=BOUND_GLOO, timeout=timedelta(seconds=engine_deadline_s))
        engine = TensorRanks(rank, world, group, deadline_s=engine_deadline_s)
    return World(channel=WorldChannel(torch, dist), engine=engine)


def groups_built() -> int:
    """Process groups ever registered in this process (torch's own running number); 0 while torch is not loaded."""
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    return 0 if c10d is None else int(c10d._world.group_count)


class WorldChannel:
    """Point to point over WORLD: a length, then the bytes."""

    def __init__(self, torch: Any, dist: Any) -> None:
        self._torch, self._dist = torch, dist

    def send(self, rank: int, data: bytes, deadline_s: float) -> None:
        size = self._torch.tensor([len(data)], dtype=self._torch.int64)
        body = self._torch.frombuffer(bytearray(data), dtype=self._torch.uint8)
        try:
            for work in [self._dist.isend(size, rank), self._dist.isend(body, rank)]:
                work.wait(timedelta(seconds=deadline_s))
        except RuntimeError as error:
            raise CellLost(f"rank {rank} took nothing within {deadline_s:g} s: {_first_line(error)}") from error

    def receive(self, rank: int, deadline_s: float) -> bytes:
        size = self._torch.zeros(1, dtype=self._torch.int64)
        try:
            self._dist.irecv(size, rank).wait(timedelta(seconds=deadline_s))
            body = self._torch.empty(int(size.item()), dtype=self._torch.uint8)
            self._dist.irecv(body, rank).wait(timedelta(seconds=deadline_s))
        except RuntimeError as error:
            raise CellLost(f"rank {rank} did not answer within {deadline_s:g} s: {_first_line(error)}") from error
        return bytes(body.numpy().tobytes())


def _first_line(error: RuntimeError) -> str:
    return str(error).partition("\n")[0]
