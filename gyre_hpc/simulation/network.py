"""Between processes: messages that may be lost, doubled, late, overtaken or cut off; and connections that keep their order."""

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from gyre_hpc.protocol.envelope import Envelope, decode, encode
from gyre_hpc.simulation.kernel import Call
from gyre_hpc.simulation.process import Process

if TYPE_CHECKING:
    from gyre_hpc.simulation.run import Simulation

LOST, DOUBLED, LATE = 0.01, 0.01, 0.01
"""Shares of all messages, storms aside."""
SLOW_TO_OPEN = 0.03
"""Share of connections to engines."""
_CHECK_EVERY = 32
"""Every so many messages one makes the way through JSON, as all do on the wire."""


class Network:
    """Addresses are `name#incarnation`, or `name` for those that keep theirs."""

    def __init__(self, sim: "Simulation") -> None:
        self._sim = sim
        self._cuts: dict[tuple[str, str], float] = {}
        self._node_cuts: dict[str, float] = {}
        self._last_cut = 0.0
        """When the last of them is healed."""
        self._storm = (-1.0, 0.0)
        self._num_sent = 0
        self._newest: dict[tuple[str, str], float] = {}
        """(sender, address) -> when the last of its messages arrives."""

    def cut(self, one: str, other: str, until: float) -> None:
        """`other` empty: everybody."""
        self._cuts[one, other] = max(until, self._cuts.get((one, other), 0.0))
        self._last_cut = max(self._last_cut, until)

    def cut_node(self, node: str, until: float) -> None:
        """From everything that is not on it."""
        self._node_cuts[node] = max(until, self._node_cuts.get(node, 0.0))
        self._last_cut = max(self._last_cut, until)

    def storm(self, until: float, share: float) -> None:
        self._storm = (until, share)

    def cut_until(self, one: str, other: str) -> float:
        """When the two hear each other again; the past if they do now."""
        if not (self._cuts or self._node_cuts) or one == other:
            return 0.0
        get = self._cuts.get
        until = max(get((one, other), 0.0), get((other, one), 0.0), get((one, ""), 0.0), get((other, ""), 0.0))
        return max(until, self._nodes_cut_until(one, other)) if self._node_cuts else until

    def _nodes_cut_until(self, one: str, other: str) -> float:
        here, there = self._sim.node_of(one), self._sim.node_of(other)
        return 0.0 if here == there else max(self._node_cuts.get(here, 0.0), self._node_cuts.get(there, 0.0))

    def is_cut(self, one: str, other: str) -> bool:
        return self._last_cut > self._sim.kernel.now and self.cut_until(one, other) > self._sim.kernel.now

    def send(self, sender: Process, to: str, message: Any) -> None:
        """One try."""
        address = sender.addresses.get(to)
        if address is None:
            return
        kernel = self._sim.kernel
        dice = kernel.rng
        self._num_sent += 1
        if self._num_sent % _CHECK_EVERY == 0:
            message = decode(encode(Envelope(sender.name, sender.attempt, message))).body
        self._sim.watch.sent(sender, to, message)
        stormy = self._storm[1] if kernel.now < self._storm[0] else 0.0
        struck = self._sim.faults.struck
        copies = 1
        if dice.random() < (max(DOUBLED, stormy / 2) if stormy else DOUBLED):
            copies = 2
            struck["message doubled"] += 1
        way = (sender.name, address)
        for _ in range(copies):
            if dice.random() < (max(LOST, stormy) if stormy else LOST):
                struck["message lost"] += 1
                continue
            late = dice.uniform(0.0, 3.0) if stormy and dice.random() < stormy else dice.uniform(0.0, 1.0) if dice.random() < LATE else 0.0
            if late:
                struck["message delayed"] += 1
            delay = dice.uniform(0.0005, 0.004) + late
            at = kernel.now + delay
            if at < self._newest.get(way, 0.0):
                struck["message overtaken"] += 1
            else:
                self._newest[way] = at
            kernel.at(delay, partial(self._arrive, sender.name, sender.attempt, address, message))

    def _arrive(self, sender: str, attempt: int, address: str, message: Any) -> None:
        process = self.process_at(address)
        if process is not None and not self.is_cut(sender, process.name):
            process.receive(sender, attempt, message)

    def peer_at(self, address: str, attempt: int) -> Process | None:
        """As process_at, for what needs a connection: a start of the run knows none of another one."""
        process = self.process_at(address)
        return process if process is not None and process.attempt == attempt else None

    def process_at(self, address: str) -> Process | None:
        """Who listens there now."""
        process = self._sim.processes.get(address.partition("#")[0])
        if process is None or not process.alive or process.machine is None:
            return None
        return process if address in (process.url, process.name) else None


class Wire:
    """One direction of a connection: what is pushed arrives in order, after a cut is healed if there is one."""

    def __init__(self, sim: "Simulation", one: str, other: str) -> None:
        self._sim, self._one, self._other = sim, one, other
        self._free_at = 0.0

    def open(self, to: Process, call: Call) -> None:
        """The first word. Now and then it takes seconds to make a connection: what it says was true when it was written."""
        dice = self._sim.kernel.rng
        if dice.random() < SLOW_TO_OPEN:
            self._sim.faults.struck["message delayed"] += 1
            self._free_at = self._sim.kernel.now + dice.choice((0.5, 2.0, 6.0)) * dice.uniform(0.5, 1.5)
        self.push(to, call)

    def push(self, to: Process, call: Call) -> None:
        """`call` happens at `to`, unless it is dead by then."""
        kernel = self._sim.kernel
        at = max(self._free_at, kernel.now + kernel.rng.uniform(0.0003, 0.003), self._sim.network.cut_until(self._one, self._other) + 0.001)
        self._free_at = at
        to.later(at - kernel.now, call)


def plain(value: Any) -> Any:
    """Checks that a value can be written as JSON."""
    return msgspec.json.encode(value)
