"""How a process stays in the supervisor's directory: part of every machine but supervision itself."""

from gyre_hpc.machines.base import Effect, Send, SetTimer
from gyre_hpc.protocol.supervision import Register

TIMER = "register"
PERIOD_S = 2.0


class Membership:
    """Registers at once and again every PERIOD_S; owns the timer named TIMER."""

    def __init__(self, register: Register, supervisor: str = "supervisor-0") -> None:
        self._register, self._supervisor = register, supervisor

    def beat(self) -> list[Effect]:
        """At the machine's first input and whenever TIMER fires."""
        return [Send(self._supervisor, self._register), SetTimer(TIMER, PERIOD_S)]
