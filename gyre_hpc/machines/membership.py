"""How a process stays in the supervisor's directory: part of every machine but supervision itself."""

import msgspec

from gyre_hpc.machines.base import Effect, Send, SetTimer
from gyre_hpc.protocol.supervision import Directory, Register

TIMER = "register"
PERIOD_S = 2.0
ARRIVE_S = 20.0
"""A registration has so long to arrive. Over a new connection that takes some seven turns of the sender's loop, each of them seconds where a
process gets hardly any CPU: with a short deadline none would ever arrive, and it would be ended for a silence in which it worked."""
SETTLED_S = 10.0
"""Of a process whose heartbeat is somebody else's affair (a cell's is the controller's), once it found itself in the directory."""


class Membership:
    """Registers at once and again every PERIOD_S, or every `settled_s` once it is known; owns the timer named TIMER. Each registration
    says which directory the process has."""

    def __init__(self, register: Register, supervisor: str = "supervisor-0", settled_s: float = PERIOD_S) -> None:
        self._register, self._supervisor, self._settled_s = register, supervisor, settled_s
        self._is_known = False

    def beat(self) -> list[Effect]:
        """At the machine's first input and whenever TIMER fires."""
        return [Send(self._supervisor, self._register, ARRIVE_S), SetTimer(TIMER, self._settled_s if self._is_known else PERIOD_S)]

    def heard(self, directory: Directory) -> list[Effect]:
        """At each directory that comes: a newer one is confirmed within PERIOD_S."""
        if directory.number <= self._register.directory:
            return []
        self._register = own = msgspec.structs.replace(self._register, directory=directory.number)
        found = (own.process, own.incarnation, own.url)
        self._is_known = any((entry.process, entry.incarnation, entry.url) == found for entry in directory.entries)
        return [SetTimer(TIMER, PERIOD_S)] if self._is_known and self._settled_s > PERIOD_S else []
