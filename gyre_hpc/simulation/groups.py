"""Process groups between cells: a reduce succeeds only if every member joins with the same nonce, and stays."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gyre_hpc.machines.cell.actions import Reduce
from gyre_hpc.simulation.process import Running
from gyre_hpc.simulation.weights import Sum

if TYPE_CHECKING:
    from gyre_hpc.simulation.run import Simulation


@dataclass(slots=True, eq=False)
class _Group:
    nonce: str
    host: str
    members: dict[int, tuple[Running, Sum]] = field(default_factory=dict)
    done: Callable[[Sum], None] | None = None
    """What rank 0 does with the total."""
    is_over: bool = False


class Groups:
    """All groups of the run, by address."""

    def __init__(self, sim: "Simulation") -> None:
        self._sim = sim
        self._groups: dict[str, _Group] = {}

    def host(self, address: str, nonce: str, process: str) -> None:
        self._groups[address] = _Group(nonce, process)

    def join(self, running: Running, action: Reduce, total: Sum, done: Callable[[Sum], None]) -> None:
        """Rank 0 calls `done` with all members' sums together when it succeeds."""
        group = self._groups.get(action.address)
        process = running.process
        if group is None or group.is_over or group.nonce != action.nonce or self._sim.network.is_cut(process.name, group.host):
            self._fail_later(running, "nobody hosts the group there")
            return
        if action.rank in group.members:
            self._fail_later(running, "rank joined twice")
            return
        group.members[action.rank] = (running, list(total))
        if action.rank == 0:
            group.done = done
        process.on_death.append(lambda: self.leave(action.address, "a member died"))
        process.later(action.deadline_s, lambda: self._overdue(action.address, running))
        if len(group.members) == action.world:
            self._sim.kernel.at(self._sim.kernel.short(0.02), lambda: self._reduce(action.address, action.world))

    def leave(self, address: str, reason: str) -> None:
        """Break the group off: everybody in it fails, each in its own time."""
        group = self._groups.get(address)
        if group is None or group.is_over:
            return
        group.is_over = True
        for running, _ in group.members.values():
            self._fail_later(running, reason)

    def _overdue(self, address: str, running: Running) -> None:
        if running.is_current:
            self.leave(address, "deadline")

    def _fail_later(self, running: Running, reason: str) -> None:
        running.process.later(self._sim.kernel.short(0.05), lambda: running.fail("TransferFailed", reason))

    def _reduce(self, address: str, world: int) -> None:
        group = self._groups[address]
        if group.is_over:
            return
        if any(running.process.paused for running, _ in group.members.values()):
            self._sim.kernel.at(0.1, lambda: self._reduce(address, world))
            return
        names = [running.process.name for running, _ in group.members.values()]
        if any(self._sim.network.is_cut(group.host, name) for name in names):
            self._sim.kernel.at(0.5, lambda: self._reduce(address, world))
            return
        group.is_over = True
        parts = [gradient for rank in range(world) for gradient in group.members[rank][1]]
        done = group.done
        assert done is not None
        for rank, (running, _) in group.members.items():
            # The last word of a reduce may get lost for one side alone.
            if self._sim.kernel.rng.random() < 0.03:
                self._fail_later(running, "connection closed by peer")
            elif rank == 0:
                running.end_after(self._sim.kernel.short(0.01), lambda: done(parts))
            else:
                running.end_after(self._sim.kernel.short(0.01), lambda: None)
