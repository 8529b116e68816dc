"""The machine of a process that decides nothing: it stays in the directory."""

from gyre_hpc.machines.base import Effect, Input, Machine, Received, Restarted, TimerFired
from gyre_hpc.machines.membership import TIMER, Membership
from gyre_hpc.protocol.supervision import Directory, Register


class Member(Machine):
    """Registers at its first input and again by timer."""

    def __init__(self, register: Register) -> None:
        self._membership = Membership(register)

    def handle(self, now: float, input: Input) -> list[Effect]:
        if isinstance(input, Received) and isinstance(input.message, Directory):
            return self._membership.heard(input.message)
        is_due = isinstance(input, Restarted) or (isinstance(input, TimerFired) and input.key == TIMER)
        return self._membership.beat() if is_due else []
